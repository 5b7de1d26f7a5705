/**
 * Computes the desired state from all objects of a cluster: the outcome of each Gateway and route, the status of each
 * policy, and one snapshot per Gateway.
 */
import {
  allEndpoints,
  type Cluster,
  createCluster,
  type KubernetesObject,
  keyOf,
  objectKey,
  POOL_KIND,
  poolEndpointsName,
  specOf,
} from "../config/documents/cluster.ts";
import {
  CONTROLLER_NAME,
  fullName,
  GATEWAY_API_GROUP,
  type ListenerSetOutcome,
  type PolicyResource,
  type ResourceResult,
  type Verdict,
} from "../config/documents/documents.ts";
import {
  type GatewayParameters,
  isVerdict,
  parametersOf,
  readParameters,
} from "../config/documents/gateway-parameters.ts";
import { maySelect } from "../config/documents/policy-targets.ts";
import { isRouteReference } from "../config/documents/route-delegation.ts";
import {
  clusterDocument,
  createSnapshot,
  gatewayKey,
  recordingCluster,
  type Snapshot,
} from "../config/documents/snapshot.ts";
import { translateResources } from "../config/documents/translate.ts";
import { routeSchema } from "../config/schema/schema.ts";
import { fieldsOf, listOf, textOf } from "../config/text/value-shapes.ts";
import { policies } from "../policies/index.ts";
import { deployedName } from "./data-plane-deployment.ts";
import { type SeveralPods, severalPods } from "./shared-state.ts";

export interface ClusterView {
  /** Contains the GatewayClasses that name this controller. */
  readonly classes: readonly KubernetesObject[];
  readonly gateways: readonly KubernetesObject[];
  readonly result: ResourceResult;
  readonly snapshots: ReadonlyMap<string, Snapshot>;
  /** Maps `namespace/name` to the GatewayPolicy in the cluster. */
  readonly policyObjects: ReadonlyMap<string, KubernetesObject>;
  readonly cluster: Cluster;
  /** Maps `namespace/name` of each Gateway to its parameters, or to a verdict if they are invalid. */
  readonly parameters: ReadonlyMap<string, GatewayParameters | Verdict>;
  /** Maps `namespace/name` to the pods of each Gateway that may have several. */
  readonly pods: ReadonlyMap<string, SeveralPods>;
  /** Includes the routes of other controllers. */
  readonly routes: readonly KubernetesObject[];
}

export const ROUTE_KINDS: ReadonlySet<string> = new Set(["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"]);
const CLASS_ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "GatewayClass accepted" };

/** The data planes of a class with invalid parameters stay as they are. */
export function classVerdict(object: KubernetesObject, cluster: Cluster): Verdict {
  const { parametersRef } = specOf(object);
  if (parametersRef === undefined) return CLASS_ACCEPTED;
  const reference = fieldsOf(parametersRef);
  const parameters = readParameters(reference, textOf(reference.namespace), cluster);
  return isVerdict(parameters) ? { ...parameters, message: `spec.${parameters.message}` } : CLASS_ACCEPTED;
}

/** `defaultReplicas` is undefined if the controller does not deploy data planes. */
export function createClusterView(
  objects: readonly KubernetesObject[],
  nowMs: number,
  defaultReplicas?: number,
): ClusterView {
  const classes = objects.filter(
    (object) => object.kind === "GatewayClass" && specOf(object).controllerName === CONTROLLER_NAME,
  );
  const ours = new Set(classes.map(({ metadata }) => metadata.name));
  const gateways = objects.filter(
    (object) => object.kind === "Gateway" && ours.has(String(specOf(object).gatewayClassName)),
  );
  const cluster = createCluster(objects);
  const routes = objects.filter(({ kind }) => ROUTE_KINDS.has(kind));
  const ownPolicies = objects.filter(({ kind }) => kind === "GatewayPolicy");
  const backends = objects.filter(({ kind }) => kind === "Backend");
  const sets = objects.filter(({ kind }) => kind === "ListenerSet");
  const documents = [...gateways, ...sets, ...routes, ...ownPolicies, ...backends].map(clusterDocument);
  const recordings = new Map<unknown, ReturnType<typeof recordingCluster>>();
  const translated = translateResources({
    documents,
    cluster,
    nowMs,
    previous: ownPolicies.map(asResource),
    recorded(document, whole) {
      const recording = recordingCluster(whole);
      recordings.set(document.value, recording);
      return recording.cluster;
    },
    standalone: { gateways: [], routes: [], services: {} },
    policies,
    routeSchema,
  });
  const parameters = new Map(
    gateways.map((gateway) => {
      const name = String(specOf(gateway).gatewayClassName);
      const gatewayClass = classes.find(({ metadata }) => metadata.name === name);
      return [gatewayKey(gateway), parametersOf(gateway, gatewayClass, cluster)];
    }),
  );
  const pods = new Map<string, SeveralPods>();
  for (const gateway of gateways) {
    if (defaultReplicas === undefined) break;
    const found = parameters.get(gatewayKey(gateway));
    if (found === undefined || isVerdict(found)) continue;
    const deployment = cluster.object("Deployment", gateway.metadata.namespace ?? "", deployedName(gateway));
    const several = severalPods(found, defaultReplicas, deployment);
    if (several) pods.set(gatewayKey(gateway), several);
  }
  const gatewayOutcomes = translated.gatewayOutcomes.map((outcome) => {
    const found = parameters.get(fullName(outcome.document));
    return outcome.accepted.isTrue && found && isVerdict(found) ? { ...outcome, accepted: found } : outcome;
  });
  const refusedGateways = new Set(
    translated.gatewayOutcomes.filter(({ accepted }) => !accepted.isTrue).map(({ document }) => fullName(document)),
  );
  const listenerSetOutcomes = translated.listenerSetOutcomes.map((outcome) => {
    if (!outcome.accepted.isTrue || !refusedGateways.has(keyOf(outcome.gateway.namespace, outcome.gateway.name)))
      return outcome;
    const message = "The Gateway is not accepted";
    return { ...outcome, accepted: { isTrue: false, reason: "ParentNotAccepted", message } };
  });
  const result = { ...translated, gatewayOutcomes, listenerSetOutcomes };
  const attachedSets = translated.listenerSetOutcomes.filter(({ accepted }) => accepted.reason !== "NotAllowed");
  const endpoints = allEndpoints(objects);

  const snapshots = new Map<string, Snapshot>();
  for (const gateway of gateways) {
    const key = gatewayKey(gateway);
    const ownSets = attachedSets
      .filter((set) => keyOf(set.gateway.namespace, set.gateway.name) === key)
      .map(({ document }) => document.value as KubernetesObject);
    const parents = new Set([gateway, ...ownSets].map(objectKey));
    const attached = withChildren(
      routes.filter((route) => hasParent(route, parents)),
      cluster,
    );
    const served = [gateway, ...ownSets, ...attached];
    const usedBy = (list: readonly KubernetesObject[]): KubernetesObject[] =>
      list.flatMap((object) => recordings.get(object)?.used() ?? []);
    const backendsOfRoutes = usedBy(attached).filter(({ kind }) => kind === "Service" || kind === "Backend");
    const targeting = ownPolicies.filter((policy) => targets(policy, [...served, ...backendsOfRoutes]));
    const own = [...served, ...targeting];
    const used = inOrder(usedBy(own));
    snapshots.set(key, createSnapshot(key, [...own, ...used], endpointsFor(used, endpoints)));
  }
  const policyObjects = new Map(ownPolicies.map((policy) => [objectKey(policy), policy]));
  return { classes, gateways, result, snapshots, policyObjects, cluster, parameters, pods, routes };
}

/** Removes duplicates and sorts, so that the snapshot version does not depend on the order of lookups. */
function inOrder(objects: readonly KubernetesObject[]): KubernetesObject[] {
  const byName = new Map(objects.map((object) => [`${object.kind} ${objectKey(object)}`, object]));
  return [...byName].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
}

/** The resource includes the current status of the policy, so that unchanged conditions keep their transition time. */
function asResource(policy: KubernetesObject): PolicyResource {
  const status = policy.status as { ancestors?: unknown } | undefined;
  const ancestors = listOf(status?.ancestors).filter(
    (one) => (one as { controllerName?: unknown }).controllerName === CONTROLLER_NAME,
  );
  return { ...policy, spec: policy.spec, status: { ancestors } } as unknown as PolicyResource;
}

/** Ignores kinds: a route that is not served by the Gateway has no effect in its snapshot. */
function hasParent(route: KubernetesObject, parents: ReadonlySet<string>): boolean {
  const own = route.metadata.namespace ?? "";
  return listOf(specOf(route).parentRefs).some((parent) => {
    const { name, namespace } = (parent ?? {}) as { name?: unknown; namespace?: unknown };
    return parents.has(keyOf(textOf(namespace) ?? own, String(name)));
  });
}

/**
 * Adds the HTTPRoutes that rules of these routes delegate to, at all levels. A data plane must not get a route, with the
 * Secrets of its policies, from a namespace that does not grant it.
 */
function withChildren(attached: readonly KubernetesObject[], cluster: Cluster): KubernetesObject[] {
  const all = new Set(attached);
  for (const { metadata, kind, spec } of all)
    for (const rule of kind === "HTTPRoute" ? listOf(fieldsOf(spec).rules) : [])
      for (const reference of listOf(fieldsOf(rule).backendRefs).filter(isRouteReference).map(fieldsOf)) {
        const from = { group: GATEWAY_API_GROUP, kind, namespace: metadata.namespace ?? "" };
        const namespace = textOf(reference.namespace) ?? from.namespace;
        const name = String(reference.name);
        const child = cluster.object(kind, namespace, name);
        if (child && cluster.mayRefer(from, { group: GATEWAY_API_GROUP, kind, namespace, name })) all.add(child);
      }
  return [...all];
}

/**
 * Ignores kinds, because a policy with an otherwise invalid reference or selector can still make its target reject all
 * requests.
 */
function targets(policy: KubernetesObject, served: readonly KubernetesObject[]): boolean {
  const { targetRefs, targetRef, targetSelectors } = specOf(policy);
  const names = new Set([...[targetRefs].flat(), targetRef].map((reference) => fieldsOf(reference).name));
  return served.some(
    ({ metadata }) =>
      metadata.namespace === policy.metadata.namespace &&
      (names.has(metadata.name) || maySelect(targetSelectors, metadata.labels ?? {})),
  );
}

/** Maps the kind and `namespace/name` of each Gateway and ListenerSet to the Gateway that serves it. */
export function gatewaysByParent(
  gateways: readonly KubernetesObject[],
  sets: readonly ListenerSetOutcome[],
): Map<string, KubernetesObject> {
  const byKey = new Map(gateways.map((gateway) => [`Gateway ${gatewayKey(gateway)}`, gateway]));
  for (const { document, gateway } of sets) {
    const parent = byKey.get(`Gateway ${keyOf(gateway.namespace, gateway.name)}`);
    if (parent) byKey.set(`ListenerSet ${fullName(document)}`, parent);
  }
  return byKey;
}

function endpointsFor(
  used: readonly KubernetesObject[],
  endpoints: ReadonlyMap<string, readonly string[]>,
): Record<string, readonly string[]> {
  const services = new Set(used.filter(({ kind }) => kind === "Service").map(objectKey));
  const pools = new Set(
    used
      .filter(({ kind }) => kind === POOL_KIND)
      .map(({ metadata: { namespace = "", name } }) => poolEndpointsName(namespace, name)),
  );
  return Object.fromEntries(
    [...endpoints]
      .filter(([name]) => pools.has(name) || services.has(name.slice(0, name.lastIndexOf(":"))))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}
