/**
 * Computes the status of each resource that this controller owns, and writes changed statuses. Entries of other
 * controllers stay untouched.
 */

import {
  isForeignGroup,
  isTlsPolicyConflicted,
  readTlsPolicy,
  tlsTargetFaults,
} from "../config/documents/backend-document.ts";
import {
  type Cluster,
  type KubernetesObject,
  keyOf,
  objectKey,
  type Referent,
  specOf,
  type TlsTarget,
  tlsTargets,
} from "../config/documents/cluster.ts";
import {
  type BackendOutcome,
  CONTROLLER_NAME,
  GATEWAY_API_GROUP,
  type GatewayOutcome,
  type ListenerOutcome,
  type ListenerSetOutcome,
  type ParentOutcome,
  POLICY_API_GROUP,
  type Verdict,
} from "../config/documents/documents.ts";
import { gatewayKey } from "../config/documents/snapshot.ts";
import { type Fields, fieldsOf, listOf, textOf } from "../config/text/value-shapes.ts";
import { defined } from "../json/json.ts";
import type { Logger } from "../record/log/logger.ts";
import { type ApiClient, ApiError, WRITE_TIMEOUT_MS } from "./api-client.ts";
import { KINDS, pathOfObject } from "./cluster-cache.ts";
import { type ClusterView, classVerdict, gatewaysByParent } from "./cluster-snapshots.ts";
import { conditionsOf, isSame, ownConditions } from "./conditions.ts";
import { poolStatuses } from "./pool-status.ts";
import { stateOfBackend, stateOfPolicy, type UnsharedState, unsharedState } from "./shared-state.ts";

export interface GatewayState {
  readonly programmed: Verdict;
  readonly addresses: readonly { readonly type: "IPAddress" | "Hostname"; readonly value: string }[];
  /** Maps `namespace/name` of each policy that a data plane rejected to the error message. */
  readonly refused: ReadonlyMap<string, string>;
}

export interface DesiredStatus {
  readonly object: KubernetesObject;
  /** Contains `namespace/name` of the Gateway whose data planes determine the status. */
  readonly gateway?: string;
  readonly status: Fields;
}

/** Returns only statuses that differ from the current ones. */
export function desiredStatuses(
  view: ClusterView,
  stateOf: (gateway: string) => GatewayState,
  nowMs: number,
  unreadable: readonly string[] = [],
): DesiredStatus[] {
  const reported = withUnsharedState(view);
  const all = [
    ...view.classes.map((object) => ({ object, status: classStatus(object, view.cluster, nowMs) })),
    ...view.result.gatewayOutcomes.map((outcome) => gatewayStatus(outcome, stateOf, nowMs, unreadable)),
    ...view.result.listenerSetOutcomes.map((outcome) => listenerSetStatus(outcome, stateOf, nowMs)),
    ...view.result.routeOutcomes.flatMap(({ document, parents }) =>
      routeStatus(objectOf(document), reported(objectOf(document), parents), nowMs),
    ),
    ...(view.classes.length === 0 ? [] : view.result.backendOutcomes.map((outcome) => backendStatus(outcome, nowMs))),
    ...tlsPolicyStatuses(view, nowMs),
    ...poolStatuses(view, nowMs),
    ...view.result.policies.flatMap((policy) =>
      policyStatus(policy as unknown as KubernetesObject, view, stateOf, nowMs),
    ),
  ];
  return changedOnly(all);
}

function changedOnly(statuses: readonly DesiredStatus[]): DesiredStatus[] {
  return statuses.filter(({ object, status }) =>
    Object.entries(status).some(([field, value]) => !isSame(value, fieldsOf(object.status)[field])),
  );
}

function objectOf(document: { readonly value: unknown }): KubernetesObject {
  return document.value as KubernetesObject;
}

function classStatus(object: KubernetesObject, cluster: Cluster, nowMs: number): Fields {
  return {
    conditions: updated(object, nowMs, { Accepted: classVerdict(object, cluster) }),
    supportedFeatures: SUPPORTED_FEATURES.map((name) => ({ name })),
  };
}

/** Keeps conditions of types that this controller does not write. */
function updated(
  object: KubernetesObject,
  nowMs: number,
  verdicts: Readonly<Record<string, Verdict | undefined>>,
  kept: (conditions: unknown) => unknown = (conditions) => conditions,
): unknown[] {
  const before = fieldsOf(object.status).conditions;
  return withOthers(kept(before), conditionsOf(object, before, nowMs, verdicts));
}

function withOthers(before: unknown, own: readonly { readonly type: string }[]): unknown[] {
  const types = new Set(own.map(({ type }) => type));
  const isInitial = (one: Fields): boolean => types.has(String(one.type));
  return [
    ...listOf(before)
      .map(fieldsOf)
      .filter((one) => !isInitial(one)),
    ...own,
  ];
}

function backendStatus({ document, accepted }: BackendOutcome, nowMs: number): DesiredStatus {
  const object = objectOf(document);
  return { object, status: { conditions: updated(object, nowMs, { Accepted: accepted }) } };
}

/** This condition exists only while policies cannot be read. */
const READABLE = `${POLICY_API_GROUP}/PoliciesReadable`;

function unreadableVerdict(kinds: readonly string[]): Verdict {
  const message = `${kinds.join(", ")} cannot be read: install the CRDs and check the rights of the controller. Known policies stay in use, and new data planes wait`;
  return { isTrue: false, reason: "KindUnavailable", message };
}

/** These conditions of a Gateway exist only while there is something to report. */
const OCCASIONAL: readonly unknown[] = [READABLE, "ResolvedRefs"];

function withoutOccasional(conditions: unknown): unknown[] {
  return listOf(conditions).filter((one) => !OCCASIONAL.includes(fieldsOf(one).type));
}

/** Returns the statuses of Gateways while the controller publishes nothing, because it could not read all policies. */
export function waitingStatuses(
  gateways: readonly KubernetesObject[],
  kinds: readonly string[],
  nowMs: number,
): DesiredStatus[] {
  return gateways.flatMap((object) => {
    const conditions = updated(object, nowMs, { [READABLE]: unreadableVerdict(kinds) });
    return isSame(conditions, fieldsOf(object.status).conditions) ? [] : [{ object, status: { conditions } }];
  });
}

/** Describes Gateways, ListenerSets, and routes that were created while policies could not be read. */
export function heldStatuses(
  held: readonly KubernetesObject[],
  { classes, gateways, result }: Pick<ClusterView, "classes" | "gateways" | "result">,
  kinds: readonly string[],
  nowMs: number,
): DesiredStatus[] {
  const ours = new Set(classes.map(({ metadata }) => metadata.name));
  const own = held.filter((one) => one.kind === "Gateway" && ours.has(String(specOf(one).gatewayClassName)));
  const keyOfParent = (object: KubernetesObject, { namespace, name, kind = "Gateway" }: Fields): string =>
    `${String(kind)} ${keyOf(textOf(namespace) ?? object.metadata.namespace ?? "", String(name))}`;
  const served = new Set([...gateways, ...own].map((gateway) => `Gateway ${gatewayKey(gateway)}`));
  const heldSets = held.filter(
    (one) => one.kind === "ListenerSet" && served.has(keyOfParent(one, fieldsOf(specOf(one).parentRef))),
  );
  const knownSets = result.listenerSetOutcomes.map(({ document }) => objectOf(document));
  for (const set of [...heldSets, ...knownSets]) served.add(`ListenerSet ${objectKey(set)}`);
  const message = `${kinds.join(", ")} cannot be read, so a new route waits: install the CRDs and check the rights of the controller`;
  const accepted: Verdict = { isTrue: false, reason: "Pending", message };
  const sets = heldSets.map((object) => ({
    object,
    status: { conditions: updated(object, nowMs, { Accepted: accepted, Programmed: accepted }) },
  }));
  const routes = held.flatMap((route) => {
    if (route.kind === "Gateway" || route.kind === "ListenerSet") return [];
    const parents = listOf(specOf(route).parentRefs)
      .map(fieldsOf)
      .filter((parent) => served.has(keyOfParent(route, parent)));
    const outcomes = parents.map((parentRef) => ({
      parentRef,
      accepted,
      resolvedRefs: { ...accepted, message: "The references are not checked yet" },
      partiallyInvalid: undefined,
    }));
    return routeStatus(route, outcomes, nowMs);
  });
  return [...waitingStatuses(own, kinds, nowMs), ...changedOnly([...sets, ...routes])];
}

function gatewayStatus(
  outcome: GatewayOutcome,
  stateOf: (gateway: string) => GatewayState,
  nowMs: number,
  unreadable: readonly string[],
): DesiredStatus {
  const object = objectOf(outcome.document);
  const status = fieldsOf(object.status);
  const { programmed: ofDataPlanes, addresses } = stateOf(gatewayKey(object));
  const programmed = programmedOf(outcome.accepted, ofDataPlanes);
  const listeners = listenerStatuses(
    object,
    outcome.listeners,
    nowMs,
    (listener) => listenerFault(listener) ?? programmed,
  );
  const { attachedSets = status.attachedListenerSets === undefined ? undefined : 0 } = outcome;
  return {
    object,
    gateway: gatewayKey(object),
    status: {
      addresses,
      ...defined({ attachedListenerSets: attachedSets }),
      conditions: updated(
        object,
        nowMs,
        {
          [READABLE]: unreadable.length === 0 ? undefined : unreadableVerdict(unreadable),
          Accepted: outcome.accepted,
          ResolvedRefs: outcome.resolvedRefs,
          Programmed: programmed,
        },
        withoutOccasional,
      ),
      listeners,
    },
  };
}

/** A Gateway with invalid parameters is served by the data plane that was deployed before. */
function programmedOf(accepted: Verdict, programmed: Verdict): Verdict {
  if (accepted.isTrue) return programmed;
  const isServed = accepted.reason === "InvalidParameters" && programmed.isTrue;
  return isServed
    ? { ...programmed, message: "Served, deployed with the last valid parameters" }
    : { isTrue: false, reason: "Invalid", message: accepted.message };
}

function listenerFault({ accepted, resolvedRefs }: ListenerOutcome): Verdict | undefined {
  const fault = [accepted, resolvedRefs].find(({ isTrue }) => !isTrue);
  return fault && { isTrue: false, reason: "Invalid", message: `The listener is not valid: ${fault.message}` };
}

function listenerStatuses(
  object: KubernetesObject,
  listeners: readonly ListenerOutcome[],
  nowMs: number,
  programmed: (listener: ListenerOutcome) => Verdict,
): Fields[] {
  const known = listOf(fieldsOf(object.status).listeners).map(fieldsOf);
  return listeners.map((listener) => {
    const before = known.find(({ name }) => name === listener.name)?.conditions;
    const { name, supportedKinds, attachedRoutes, accepted, resolvedRefs, conflicted } = listener;
    const conditions = conditionsOf(object, before, nowMs, {
      Accepted: accepted,
      Programmed: programmed(listener),
      ResolvedRefs: resolvedRefs,
      Conflicted: conflicted,
    });
    return { name, supportedKinds, attachedRoutes, conditions };
  });
}

function listenerSetStatus(
  { document, gateway, accepted, listeners }: ListenerSetOutcome,
  stateOf: (gateway: string) => GatewayState,
  nowMs: number,
): DesiredStatus {
  const object = objectOf(document);
  const key = keyOf(gateway.namespace, gateway.name);
  const { programmed: ofGateway } = stateOf(key);
  const isParentFault = accepted.isTrue ? !ofGateway.isTrue : accepted.reason === "ParentNotAccepted";
  const programmed = accepted.isTrue ? ofGateway : accepted;
  return {
    object,
    gateway: key,
    status: {
      conditions: updated(object, nowMs, {
        Accepted: accepted,
        Programmed: isParentFault ? { ...programmed, reason: "ParentNotProgrammed" } : programmed,
      }),
      listeners: listenerStatuses(object, listeners, nowMs, (listener) => {
        if (listener.conflicted.isTrue) return { ...listener.conflicted, isTrue: false };
        return listenerFault(listener) ?? ofGateway;
      }),
    },
  };
}

function routeStatus(object: KubernetesObject, outcomes: readonly ParentOutcome[], nowMs: number): DesiredStatus[] {
  const before = listOf(fieldsOf(object.status).parents).map(fieldsOf);
  const others = before.filter(({ controllerName }) => controllerName !== CONTROLLER_NAME);
  const own = outcomes.map(({ parentRef, accepted, resolvedRefs, partiallyInvalid }) => ({
    parentRef,
    controllerName: CONTROLLER_NAME,
    conditions: conditionsOf(object, ownConditions(before, "parentRef", parentRef), nowMs, {
      Accepted: accepted,
      ResolvedRefs: resolvedRefs,
      PartiallyInvalid: partiallyInvalid,
    }),
  }));
  // The route neither has nor had a status entry of this controller.
  if (own.length === 0 && others.length === before.length) return [];
  return [{ object, status: { parents: [...others, ...own] } }];
}

type Outcomes = (route: KubernetesObject, outcomes: readonly ParentOutcome[]) => readonly ParentOutcome[];

/** Reports the Backends of routes whose state the pods of the Gateway do not share. */
function withUnsharedState(view: ClusterView): Outcomes {
  if (view.pods.size === 0) return (_, outcomes) => outcomes;
  const states = statesOfRoutes(view);
  const byParent = gatewaysByParent(view.gateways, view.result.listenerSetOutcomes);
  return (route, outcomes) => {
    const own = states.get(route) ?? [];
    if (own.length === 0) return outcomes;
    return outcomes.map((outcome) => {
      const { kind = "Gateway", namespace, name } = outcome.parentRef;
      const key = keyOf(textOf(namespace) ?? route.metadata.namespace ?? "", String(name));
      const gateway = byParent.get(`${String(kind)} ${key}`);
      const problem = gateway && unsharedState(own, view.pods.get(gatewayKey(gateway)));
      if (problem === undefined || !outcome.accepted.isTrue) return outcome;
      const { partiallyInvalid: known } = outcome;
      const partiallyInvalid: Verdict = known
        ? { ...known, message: `${known.message}; ${problem}` }
        : { isTrue: true, reason: "UnsupportedValue", message: problem };
      return { ...outcome, partiallyInvalid };
    });
  };
}

function statesOfRoutes({ cluster, result }: ClusterView): Map<unknown, UnsharedState[]> {
  const byBackend = new Map<string, UnsharedState[]>();
  const stateOf = ({ namespace, name }: Pick<Referent, "namespace" | "name">): UnsharedState[] => {
    const key = keyOf(namespace, name);
    let found = byBackend.get(key);
    if (found === undefined) {
      const backend = cluster.object("Backend", namespace, name);
      found = (backend ? stateOfBackend(backend) : []).map((one) => ({ ...one, field: `Backend ${key} ${one.field}` }));
      byBackend.set(key, found);
    }
    return found;
  };
  const states = new Map<unknown, UnsharedState[]>();
  for (const { document, uses = [] } of result.routes) {
    const own = states.get(document.value) ?? [];
    for (const use of uses)
      for (const state of use?.reference.kind === "Backend" ? stateOf(use.reference) : [])
        if (!own.includes(state)) own.push(state);
    states.set(document.value, own);
  }
  return states;
}

function policyStatus(
  policy: KubernetesObject,
  view: ClusterView,
  stateOf: (gateway: string) => GatewayState,
  nowMs: number,
): DesiredStatus[] {
  const current = view.policyObjects.get(objectKey(policy));
  if (!current) return [];
  const before = listOf(fieldsOf(current.status).ancestors).map(fieldsOf);
  const others = before.filter(({ controllerName }) => controllerName !== CONTROLLER_NAME);
  const states = view.pods.size === 0 ? [] : stateOfPolicy(current);
  const own = listOf(fieldsOf(policy.status).ancestors).map((ancestor) => {
    const { ancestorRef, controllerName, conditions } = fieldsOf(ancestor);
    const reference = fieldsOf(ancestorRef);
    const isGateway = reference.kind === "Gateway" && reference.group === GATEWAY_API_GROUP;
    const key = `${String(reference.namespace)}/${String(reference.name)}`;
    const message = isGateway ? stateOf(key).refused.get(objectKey(current)) : undefined;
    const known = before.find((one) => isSame(one.ancestorRef, ancestorRef))?.conditions;
    if (message === undefined) {
      const problem = isGateway && view.pods.has(key) ? unsharedState(states, view.pods.get(key)) : undefined;
      const verdicts = problem === undefined ? undefined : withProblem(conditions, problem);
      const shown = verdicts === undefined ? conditions : conditionsOf(current, known, nowMs, verdicts);
      return { ancestorRef, controllerName, conditions: shown };
    }
    const invalid: Verdict = { isTrue: false, reason: "Invalid", message };
    const verdicts = { Accepted: invalid, Attached: invalid };
    return { ancestorRef, controllerName, conditions: conditionsOf(current, known, nowMs, verdicts) };
  });
  own.sort((one, other) => Number(isAccepted(one)) - Number(isAccepted(other)));
  const isOurs = own.some(({ ancestorRef }) => reaches(fieldsOf(ancestorRef), view));
  // Policies without a target of this controller are not modified.
  if (!isOurs && others.length === before.length) return [];
  return [{ object: current, status: { ancestors: [...others, ...(isOurs ? own : [])].slice(0, 16) } }];
}

/** An accepted policy has an effect, but not the whole one. Returns undefined for other policies. */
function withProblem(conditions: unknown, problem: string): Record<string, Verdict> | undefined {
  if (!isAccepted({ conditions })) return undefined;
  const verdicts = listOf(conditions)
    .map(fieldsOf)
    .map(({ type, status, reason, message }): [string, Verdict] => {
      const verdict = { isTrue: status === "True", reason: String(reason), message: String(message) };
      if (type !== "Accepted") return [String(type), verdict];
      const others = verdict.reason === "Valid" ? [] : [verdict.message];
      return ["Accepted", { isTrue: true, reason: "PartiallyInvalid", message: [...others, problem].join("; ") }];
    });
  return Object.fromEntries(verdicts);
}

function isAccepted({ conditions }: { readonly conditions: unknown }): boolean {
  return listOf(conditions)
    .map(fieldsOf)
    .some(({ type, status }) => type === "Accepted" && status === "True");
}

function reaches({ kind, namespace, name }: Fields, { gateways, result }: ClusterView): boolean {
  if (kind === "Gateway")
    return gateways.some(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
  // If this controller has a Gateway, it also reports on unserved routes, missing targets, and policies without a
  // target, so that their authors see the problem.
  return gateways.length > 0 || result.gatewayOutcomes.length > 0;
}

/** The Gateway API allows at most 16 ancestors. */
const MOST_ANCESTORS = 16;
const CONFLICTED: Verdict = {
  isTrue: false,
  reason: "Conflicted",
  message: "An older BackendTLSPolicy is for the same port of the Service",
};

type TlsStatusInput = Pick<ClusterView, "cluster" | "gateways" | "routes" | "result">;

function tlsPolicyStatuses(
  { cluster, gateways, routes, result }: TlsStatusInput,
  nowMs: number,
): { readonly object: KubernetesObject; readonly status: Fields }[] {
  const policies = cluster.objects("BackendTLSPolicy");
  if (policies.length === 0) return [];
  const users = usersOfServices(gateways, result, routes);
  return policies.flatMap((object) => {
    const namespace = object.metadata.namespace ?? "";
    const targets = tlsTargets(object).filter(({ reference }) => !isForeignGroup(reference.group));
    const reached = targets.flatMap(({ reference }) =>
      reference.namespace === namespace ? [...(users.get(keyOf(namespace, reference.name)) ?? [])] : [],
    );
    const faults = tlsTargetFaults(object, cluster).filter(({ target }) => targets.some(isSameTarget(target)));
    const before = listOf(fieldsOf(object.status).ancestors).map(fieldsOf);
    const others = before.filter(({ controllerName }) => controllerName !== CONTROLLER_NAME);
    const parents = [...new Map(reached.map((gateway) => [gatewayKey(gateway), gateway])).values()];
    const own =
      parents.length > 0 || gateways.length === 0
        ? parents.map(gatewayReference)
        : // A reference that names nothing reaches no Gateway, so it is its own ancestor.
          faults.map(({ target }) => target.reference);
    if (own.length === 0 && others.length === before.length) return [];
    const read = readTlsPolicy(object, cluster);
    const [fault] = faults;
    const refused = fault && {
      ...fault.accepted,
      message: `${faults.map(({ accepted }) => accepted.message).join("; ")}${faults.length < targets.length ? "; the other targets are in effect" : ""}`,
    };
    const accepted = isTlsPolicyConflicted(object, cluster) ? CONFLICTED : (refused ?? read.accepted);
    const verdicts = { Accepted: accepted, ResolvedRefs: read.resolvedRefs };
    const ancestors = uniqueReferences(own).map((ancestorRef) => ({
      ancestorRef,
      controllerName: CONTROLLER_NAME,
      conditions: conditionsOf(object, ownConditions(before, "ancestorRef", ancestorRef), nowMs, verdicts),
    }));
    return [{ object, status: { ancestors: [...others, ...ancestors].slice(0, MOST_ANCESTORS) } }];
  });
}

function isSameTarget({ path }: TlsTarget): (other: TlsTarget) => boolean {
  return (other) => isSame(other.path, path);
}

function gatewayReference({ metadata }: KubernetesObject): Referent {
  return { group: GATEWAY_API_GROUP, kind: "Gateway", namespace: metadata.namespace ?? "", name: metadata.name };
}

function uniqueReferences(references: readonly Referent[]): Referent[] {
  return [...new Map(references.map((reference) => [JSON.stringify(reference), reference])).values()];
}

/** Maps `namespace/name` of a Service to the Gateways whose routes refer to it. */
function usersOfServices(
  gateways: readonly KubernetesObject[],
  result: ClusterView["result"],
  routes: readonly KubernetesObject[],
): Map<string, Set<KubernetesObject>> {
  const byKey = gatewaysByParent(gateways, result.listenerSetOutcomes);
  const users = new Map<string, Set<KubernetesObject>>();
  const add = (key: string, parents: readonly KubernetesObject[]): void => {
    const known = users.get(key) ?? new Set();
    for (const gateway of parents) known.add(gateway);
    users.set(key, known);
  };
  for (const route of routes) {
    const own = route.metadata.namespace ?? "";
    const parents = listOf(specOf(route).parentRefs).flatMap((parent) => {
      const { kind = "Gateway", name, namespace } = fieldsOf(parent);
      return byKey.get(`${String(kind)} ${keyOf(textOf(namespace) ?? own, String(name))}`) ?? [];
    });
    for (const rule of parents.length === 0 ? [] : listOf(specOf(route).rules))
      for (const reference of listOf(fieldsOf(rule).backendRefs).map(fieldsOf))
        add(keyOf(textOf(reference.namespace) ?? own, String(reference.name)), parents);
  }
  // Only the written routes show the Gateways of a child route.
  for (const { route, uses = [] } of result.routes) {
    const parents = route.gateways.flatMap(
      (name) => byKey.get(`Gateway ${name.slice(0, name.lastIndexOf(":"))}`) ?? [],
    );
    for (const use of uses)
      if (use?.reference.kind === "Service") add(keyOf(use.reference.namespace, use.reference.name), parents);
  }
  return users;
}

// GatewayClass statuses list these features, which must be sorted.

const SUPPORTED_FEATURES: readonly string[] = [
  "BackendTLSPolicy",
  "BackendTLSPolicySANValidation",
  "GRPCRoute",
  "GRPCRouteNamedRouteRule",
  "Gateway",
  "GatewayAddressEmpty",
  "GatewayBackendClientCertificate",
  "GatewayFrontendClientCertificateValidation",
  "GatewayHTTPListenerIsolation",
  "GatewayHTTPSListenerDetectMisdirectedRequests",
  "GatewayInfrastructure",
  "GatewayPort8080",
  "GatewayStaticAddresses",
  "HTTPRoute",
  "HTTPRoute303RedirectStatusCode",
  "HTTPRoute307RedirectStatusCode",
  "HTTPRoute308RedirectStatusCode",
  "HTTPRouteBackendProtocolH2C",
  "HTTPRouteBackendProtocolWebSocket",
  "HTTPRouteBackendRequestHeaderModification",
  "HTTPRouteBackendTimeout",
  "HTTPRouteDestinationPortMatching",
  "HTTPRouteHostRewrite",
  "HTTPRouteMethodMatching",
  "HTTPRouteNamedRouteRule",
  "HTTPRouteParentRefPort",
  "HTTPRoutePathRedirect",
  "HTTPRoutePathRewrite",
  "HTTPRoutePortRedirect",
  "HTTPRouteQueryParamMatching",
  "HTTPRouteRequestMirror",
  "HTTPRouteRequestMultipleMirrors",
  "HTTPRouteRequestPercentageMirror",
  "HTTPRouteRequestTimeout",
  "HTTPRouteResponseHeaderModification",
  "HTTPRouteSchemeRedirect",
  "ListenerSet",
  "ReferenceGrant",
  "TCPRoute",
  "TLSRoute",
  "TLSRouteModeMixed",
  "TLSRouteModeTerminate",
];

const PARALLEL = 8;

export interface StatusWriter {
  /** Resolves with true if a write failed and must be retried. */
  write(statuses: readonly DesiredStatus[]): Promise<boolean>;
  written(): number;
}

/** `mayWrite` is checked before each write, because leadership can end between two writes. */
export function createStatusWriter(client: ApiClient, logger: Logger, mayWrite: () => boolean): StatusWriter {
  /** Maps each object to its version and status at the last write, because the watch may lag behind. */
  const sent = new Map<string, { readonly version: string | undefined; readonly text: string }>();
  let written = 0;

  async function writeOne({ object, status }: DesiredStatus): Promise<boolean> {
    const kind = KINDS.find((one) => one.kind === object.kind);
    if (!kind) return false;
    const key = `${object.kind} ${objectKey(object)}`;
    const { resourceVersion } = object.metadata;
    const text = JSON.stringify(status);
    const before = sent.get(key);
    if (before?.version === resourceVersion && before?.text === text) return false;
    const { namespace = "", name } = object.metadata;
    try {
      await client.request({
        method: "PATCH",
        path: pathOfObject(kind, namespace, name, "status"),
        type: "application/merge-patch+json",
        body: { metadata: { resourceVersion }, status },
        timeoutMs: WRITE_TIMEOUT_MS,
      });
      sent.set(key, { version: resourceVersion, text });
      written += 1;
      return false;
    } catch (error) {
      // The object changed or was deleted, which the watch reports.
      if (error instanceof ApiError && (error.status === 409 || error.status === 404)) return false;
      logger.warn("status update failed", { object: key, reason: (error as Error).message });
      return true;
    }
  }

  return {
    written: () => written,
    async write(statuses) {
      const queue = [...statuses];
      let isIncomplete = false;
      const worker = async (): Promise<void> => {
        for (let next = queue.shift(); next !== undefined && mayWrite(); next = queue.shift())
          if (await writeOne(next)) isIncomplete = true;
      };
      await Promise.all(Array.from({ length: Math.min(PARALLEL, queue.length) }, worker));
      if (sent.size > 10_000) sent.clear();
      return isIncomplete;
    },
  };
}
