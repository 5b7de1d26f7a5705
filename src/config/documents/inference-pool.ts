/**
 * Resolves a backendRef of a route to an InferencePool (Gateway API Inference Extension): the ready pods that it
 * selects, and the endpoint picker that selects one of them for each request.
 */
import { type Fields, fieldsOf, listOf, textOf } from "../text/value-shapes.ts";
import { type FindBackend, type FoundBackend, tlsOfService } from "./backend-document.ts";
import {
  type Cluster,
  INFERENCE_GROUP,
  type KubernetesObject,
  POOL_KIND,
  poolEndpointsName,
  specOf,
} from "./cluster.ts";
import { GATEWAY_API_GROUP, identityOf, type ResourceDocument, type Verdict } from "./documents.ts";

const H2C = "kubernetes.io/h2c";
/** Maps `spec.appProtocol` to fields of the backend. */
const PROTOCOLS: ReadonlyMap<string, Fields> = new Map([
  ["http", {}],
  [H2C, { protocol: "h2c" }],
]);
const FAILURE_MODES: ReadonlyMap<string, string> = new Map([
  ["FailClose", "closed"],
  ["FailOpen", "open"],
]);

const ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "The pool is served" };
const RESOLVED: Verdict = { isTrue: true, reason: "ResolvedRefs", message: "All references resolved" };

export interface ReadPool {
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  /** Undefined if the pool must not be used. */
  readonly backend: Fields | undefined;
}

/** Certificates of the picker are granted to `reader`. */
export function readPool(pool: KubernetesObject, cluster: Cluster, reader?: ResourceDocument): ReadPool {
  const { namespace = "", name } = pool.metadata;
  const { appProtocol = "http", endpointPickerRef } = specOf(pool);
  const refused = (message: string): ReadPool => ({
    accepted: { isTrue: false, reason: "UnsupportedValue", message },
    resolvedRefs: RESOLVED,
    backend: undefined,
  });
  const protocol = PROTOCOLS.get(String(appProtocol));
  if (protocol === undefined) return refused(`spec.appProtocol ${String(appProtocol)} is not supported`);
  const backend = { service: { name: poolEndpointsName(namespace, name) }, ...protocol };
  // Without a picker, requests are distributed round-robin.
  if (endpointPickerRef === undefined) return { accepted: ACCEPTED, resolvedRefs: RESOLVED, backend };
  const picker = fieldsOf(endpointPickerRef);
  const failureMode = FAILURE_MODES.get(textOf(picker.failureMode) ?? "FailClose");
  if (failureMode === undefined)
    return refused(`spec.endpointPickerRef.failureMode ${String(picker.failureMode)} is not supported`);
  const found = findPicker(picker, namespace, cluster, reader);
  if (typeof found === "string") {
    const message = `spec.endpointPickerRef: ${found}`;
    const resolvedRefs = { isTrue: false, reason: "InvalidExtensionRef", message };
    return { accepted: ACCEPTED, resolvedRefs, backend: undefined };
  }
  const policies = { endpointPicker: { ...found, failureMode } };
  return { accepted: ACCEPTED, resolvedRefs: RESOLVED, backend: { ...backend, policies } };
}

/** Returns the reason if the picker cannot be used. */
function findPicker(
  { group = "", kind = "Service", name, port }: Fields,
  namespace: string,
  cluster: Cluster,
  reader: ResourceDocument | undefined,
): Fields | string {
  if (group !== "" || kind !== "Service")
    return `${group === "" ? "" : `${String(group)}/`}${String(kind)} is not supported: use Service`;
  const shown = `Service ${namespace}/${String(name)}`;
  const number = fieldsOf(port).number;
  const service = cluster.service(namespace, String(name), number);
  if (service === undefined) return `${shown} was not found`;
  if (service.type === "ExternalName") return `${shown} is of type ExternalName, which is not supported`;
  if (service.port === undefined) return `${shown} has no TCP port ${String(number)}`;
  const target = { service: `${namespace}/${String(name)}:${service.port.port}` };
  const tls = reader && tlsOfService(cluster, reader, { namespace, name: String(name), port: service.port.name });
  if (tls !== undefined) return "closed" in tls ? tls.closed : { ...target, tls: tls.backendTLS };
  if (service.port.appProtocol === H2C) return target;
  // Pickers use TLS with a certificate that they generate when they start.
  return { ...target, tls: { hostname: `${String(name)}.${namespace}.svc`, insecure: true } };
}

export function isPoolReference({ group, kind }: Fields): boolean {
  return group === INFERENCE_GROUP && kind === POOL_KIND;
}

/** Routes of these kinds can forward to InferencePools. */
export const POOL_ROUTE_KINDS: ReadonlySet<string> = new Set(["HTTPRoute", "GRPCRoute"]);

/** Adds InferencePools to the backends of a route. The port of the reference is ignored, as the API requires. */
export function withPools(find: FindBackend, cluster: Cluster, route: ResourceDocument): FindBackend {
  const { kind: routeKind } = identityOf(route);
  return (reference, namespace): FoundBackend => {
    if (!isPoolReference(reference)) return find(reference, namespace);
    const name = textOf(reference.name) ?? "";
    const inNamespace = textOf(reference.namespace) ?? namespace;
    const shown = `InferencePool ${inNamespace}/${name}`;
    if (!POOL_ROUTE_KINDS.has(routeKind))
      return {
        reason: "InvalidKind",
        message: `${routeKind} cannot forward to an InferencePool: use an HTTPRoute or a GRPCRoute`,
      };
    const to = { group: INFERENCE_GROUP, kind: POOL_KIND, namespace: inNamespace, name };
    if (!cluster.mayRefer({ group: GATEWAY_API_GROUP, kind: routeKind, namespace }, to))
      return {
        reason: "RefNotPermitted",
        message: `${shown} is in another namespace, whose ReferenceGrants do not allow this`,
      };
    const pool = cluster.object(POOL_KIND, inNamespace, name);
    if (pool === undefined) return { reason: "BackendNotFound", message: `${shown} was not found` };
    const { backend, accepted, resolvedRefs } = readPool(pool, cluster, route);
    if (backend !== undefined) {
      const http2 = routeKind === "GRPCRoute" ? { protocol: "h2c" } : {};
      return { backend: { ...backend, ...http2 }, reference: to, policySource: shown };
    }
    // The problem of an object in another namespace is not shown to the referrer.
    const why = inNamespace === namespace ? `: ${(accepted.isTrue ? resolvedRefs : accepted).message}` : "";
    return { backend: CLOSED, reference: to, closed: `${shown} is not valid${why}` };
  };
}

/** This placeholder replaces a pool that must not be used, whose requests are rejected. */
const CLOSED = { host: "reference.invalid:1" };

/** Returns the pools to which the rules of a route refer, as `namespace/name`. */
export function poolsOfRoute(route: KubernetesObject): { readonly namespace: string; readonly name: string }[] {
  const own = route.metadata.namespace ?? "";
  return listOf(specOf(route).rules)
    .flatMap((rule) => listOf(fieldsOf(rule).backendRefs).map(fieldsOf))
    .filter(isPoolReference)
    .map(({ namespace, name }) => ({ namespace: textOf(namespace) ?? own, name: String(name) }));
}
