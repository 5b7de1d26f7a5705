/**
 * Reads Backend documents, resolves each backendRef to a Backend or a Service, and reads the BackendTLSPolicy of a
 * Service.
 */
import { z } from "zod";
import { backends } from "../../backends/index.ts";
import { nearestName } from "../../cel/values/nearest-name.ts";
import { exactlyOneOf } from "../../core/schema.ts";
import { checkCertificates } from "../../http/certificates.ts";
import { backendProtocol } from "../schema/schema.ts";
import { pathText } from "../text/value-path.ts";
import { type Fields, fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";
import {
  type Cluster,
  type KubernetesObject,
  objectKey,
  portNames,
  specOf,
  type TlsTarget,
  tlsTargets,
} from "./cluster.ts";
import { confinedValues } from "./confined-values.ts";
import {
  type BackendOutcome,
  GATEWAY_API_GROUP,
  identityOf,
  type ObjectReference,
  POLICY_API_GROUP,
  POLICY_API_VERSION,
  type ProblemList,
  type ResourceDocument,
  type ResourceInput,
  type Verdict,
} from "./documents.ts";

const KINDS = ["mcp", "ai", "host"];

export const backendSpecSchema = exactlyOneOf(
  z.strictObject({
    ...Object.fromEntries(
      backends
        .filter(({ key }) => KINDS.includes(key))
        .map(({ key, schema, doc }) => [key, schema.optional().describe(doc)]),
    ),
    protocol: backendProtocol.optional(),
  }),
  KINDS,
);

export type ReadBackend =
  | { readonly backend: Readonly<Record<string, unknown>> }
  | { readonly path: readonly (string | number)[]; readonly message: string };

/** Secrets of the backend are granted to `reader`. */
export function readBackend(
  value: unknown,
  namespace: string,
  reader: ResourceDocument,
  cluster?: Cluster,
): ReadBackend {
  const { apiVersion, spec } = fieldsOf(value);
  if (apiVersion !== POLICY_API_VERSION) return { path: ["apiVersion"], message: `expected ${POLICY_API_VERSION}` };
  if (!isObject(spec)) return { path: ["spec"], message: "required field is missing" };
  const referrer = { group: POLICY_API_GROUP, kind: "Backend", namespace };
  const { value: confined, faults } = cluster
    ? confinedValues(backendSpecSchema, spec, ["spec"], { cluster, document: reader, referrer })
    : { value: spec, faults: [] };
  const [fault] = faults;
  if (fault) return fault;
  const parsed = backendSpecSchema.safeParse(confined);
  if (parsed.success) return { backend: confined as Record<string, unknown> };
  const [issue] = parsed.error.issues;
  return { path: ["spec", ...(issue?.path ?? []).map(asPart)], message: issue?.message ?? "not valid" };
}

export function backendOutcome(document: ResourceDocument, problems: ProblemList, cluster?: Cluster): BackendOutcome {
  const read = readBackend(document.value, identityOf(document).namespace, document, cluster);
  if ("backend" in read)
    return { document, accepted: { isTrue: true, reason: "Accepted", message: "The backend is valid" } };
  problems.add(read.path, `${read.message}; requests to it get 500`);
  const message = `${pathText(read.path)}: ${read.message}`;
  return { document, accepted: { isTrue: false, reason: "Invalid", message } };
}

function asPart(part: PropertyKey): string | number {
  return typeof part === "symbol" ? String(part) : part;
}

export interface ReadTlsPolicy {
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  readonly tls: BackendTls | undefined;
}

interface BackendTls {
  readonly root?: string;
  readonly hostname: string;
  readonly subjectAltNames?: readonly string[];
}

const ACCEPTED: Verdict = { isTrue: true, reason: "Accepted", message: "The policy is valid" };
const RESOLVED: Verdict = { isTrue: true, reason: "ResolvedRefs", message: "All references resolved" };

export function readTlsPolicy(policy: KubernetesObject, cluster: Cluster): ReadTlsPolicy {
  const { hostname, subjectAltNames, caCertificateRefs, wellKnownCACertificates } = fieldsOf(specOf(policy).validation);
  const no = (message: string, resolvedRefs = RESOLVED, reason = "Invalid"): ReadTlsPolicy => ({
    accepted: { isTrue: false, reason, message },
    resolvedRefs,
    tls: undefined,
  });
  const [option] = Object.keys(fieldsOf(specOf(policy).options));
  if (option !== undefined) return no(`spec.options: ${option} is not supported`);
  const name = textOf(hostname);
  if (name === undefined) return no("spec.validation.hostname: required field is missing");
  const names = readNames(subjectAltNames);
  if (names === undefined) return no("spec.validation.subjectAltNames: expected a hostname or a URI each");
  const tls = { hostname: name, ...(names.length === 0 ? {} : { subjectAltNames: names }) };
  const references = listOf(caCertificateRefs).map(fieldsOf);
  if (references.length === 0)
    return wellKnownCACertificates === "System"
      ? { accepted: ACCEPTED, resolvedRefs: RESOLVED, tls }
      : no("spec.validation: caCertificateRefs, or wellKnownCACertificates with the value System, are needed");
  const read = references.map((reference) => readRoot(reference, policy.metadata.namespace ?? "", cluster));
  const roots = read.flatMap((one) => (typeof one === "string" ? [one] : []));
  const resolvedRefs = read.find((one) => typeof one !== "string") ?? RESOLVED;
  if (roots.length === 0) return no(resolvedRefs.message, resolvedRefs, "NoValidCACertificate");
  return { accepted: ACCEPTED, resolvedRefs, tls: { ...tls, root: roots.join("\n") } };
}

/** Returns the certificates of a reference to a ConfigMap, or the reason why there are none. */
export function readRoot({ group = "", kind, name }: Fields, namespace: string, cluster: Cluster): string | Verdict {
  const no = (reason: string, message: string): Verdict => ({ isTrue: false, reason, message });
  if (group !== "" || kind !== "ConfigMap") return no("InvalidKind", `${String(kind)} is not supported: use ConfigMap`);
  const shown = `ConfigMap ${namespace}/${String(name)}`;
  const found = cluster.object("ConfigMap", namespace, String(name));
  const text = textOf(fieldsOf(found?.data)["ca.crt"]);
  if (text === undefined) return no("InvalidCACertificateRef", `${shown} was not found, or has no key ca.crt`);
  try {
    checkCertificates({ ca: text });
    return text;
  } catch (error) {
    return no("InvalidCACertificateRef", `${shown}: ${(error as Error).message}`);
  }
}

function readNames(written: unknown): string[] | undefined {
  const names = listOf(written).map((one) => {
    const { type, hostname, uri } = fieldsOf(one);
    if (type === "Hostname") return textOf(hostname);
    return type === "URI" && textOf(uri)?.includes("://") ? textOf(uri) : undefined;
  });
  return names.includes(undefined) ? undefined : (names as string[]);
}

interface TlsTargetFault {
  readonly target: TlsTarget;
  readonly accepted: Verdict;
}

/** Returns the references of a BackendTLSPolicy that name nothing that it can apply to. */
export function tlsTargetFaults(policy: KubernetesObject, cluster: Cluster): TlsTargetFault[] {
  return tlsTargets(policy).flatMap((target) => {
    const accepted = faultOf(target, policy, cluster);
    return accepted === undefined ? [] : [{ target, accepted }];
  });
}

function faultOf(
  { path, reference, sectionName, misplaced }: TlsTarget,
  policy: KubernetesObject,
  cluster: Cluster,
): Verdict | undefined {
  const no = (message: string, field?: string, reason = "Invalid"): Verdict => ({
    isTrue: false,
    reason,
    message: `${pathText(field === undefined ? path : [...path, field])}: ${message}`,
  });
  const { group, kind, namespace, name } = reference;
  if (misplaced !== undefined) return no(misplaced);
  if (namespace !== policy.metadata.namespace)
    return no("a policy applies only to Services in its own namespace", "namespace");
  if (kind !== "Service")
    return no(`the kind ${kind === "" ? "is missing" : `${kind} is not supported`}: use Service`, "kind");
  if (group !== "") return no('expected ""', "group");
  if (name === "") return no("required field is missing", "name");
  const shown = `Service ${namespace}/${name}`;
  const service = cluster.object("Service", namespace, name);
  if (service === undefined) return no(`${shown} was not found`, undefined, "TargetNotFound");
  const names = portNames(service);
  if (sectionName === undefined || names.includes(sectionName)) return undefined;
  const known = names.length === 0 ? "its TCP ports have no names" : `its TCP ports are ${names.join(", ")}`;
  return no(
    `${shown} has no port with the name ${sectionName} (${known}); requests to it get 500 until this is fixed`,
    "sectionName",
    "TargetNotFound",
  );
}

/**
 * Returns why no request may reach the Service or Backend. A policy whose reference is wrong but probably means it must
 * not leave its traffic in plain text.
 */
function closedByTlsPolicy(cluster: Cluster, kind: string, namespace: string, name: string): string | undefined {
  for (const policy of inOrder(cluster.tlsPolicies(namespace, name)))
    for (const { target, accepted } of tlsTargetFaults(policy, cluster)) {
      const { reference } = target;
      if (reference.namespace !== namespace || reference.name !== name || isForeignGroup(reference.group)) continue;
      if (reference.kind === "" || reference.kind.toLowerCase() === kind.toLowerCase())
        return `BackendTLSPolicy ${objectKey(policy)}: ${accepted.message}`;
    }
  return undefined;
}

/** Kinds of other API groups belong to other controllers. A group without a dot is a mistake. */
export function isForeignGroup(group: string): boolean {
  return group.includes(".") && group !== POLICY_API_GROUP && group !== GATEWAY_API_GROUP;
}

export function isTlsPolicyConflicted(policy: KubernetesObject, cluster: Cluster): boolean {
  return usableTargets(policy, cluster).some(({ reference: { namespace, name }, sectionName }) => {
    const [first] = inOrder(cluster.tlsPolicies(namespace, name).filter(hasTarget(cluster, name, sectionName)));
    return first !== undefined && objectKey(first) !== objectKey(policy);
  });
}

function usableTargets(policy: KubernetesObject, cluster: Cluster): readonly TlsTarget[] {
  return tlsTargets(policy).filter((target) => faultOf(target, policy, cluster) === undefined);
}

function hasTarget(
  cluster: Cluster,
  name: string,
  sectionName: string | undefined,
): (policy: KubernetesObject) => boolean {
  return (policy) =>
    usableTargets(policy, cluster).some(
      (target) => target.reference.name === name && target.sectionName === sectionName,
    );
}

function inOrder(policies: readonly KubernetesObject[]): KubernetesObject[] {
  const key = (policy: KubernetesObject): string => `${policy.metadata.creationTimestamp ?? ""} ${objectKey(policy)}`;
  return [...policies].sort((one, other) => (key(one) < key(other) ? -1 : 1));
}

export function tlsOfService(
  cluster: Cluster,
  document: ResourceDocument,
  service: { readonly namespace: string; readonly name: string; readonly port: string },
): { readonly backendTLS: Fields } | { readonly closed: string } | undefined {
  const { namespace, name, port } = service;
  const policies = inOrder(cluster.tlsPolicies(namespace, name));
  // A policy that names the port takes precedence over a policy for the whole Service.
  const own = policies.find(hasTarget(cluster, name, port));
  const closed = own === undefined ? closedByTlsPolicy(cluster, "Service", namespace, name) : undefined;
  if (closed !== undefined) return { closed };
  const policy = own ?? policies.find(hasTarget(cluster, name, undefined));
  if (policy === undefined) return undefined;
  const { tls, accepted } = readTlsPolicy(policy, cluster);
  if (tls === undefined) return { closed: `BackendTLSPolicy ${objectKey(policy)}: ${accepted.message}` };
  const { root, ...rest } = tls;
  if (root === undefined) return { backendTLS: rest };
  const granted = document.confined?.grant(`BackendTLSPolicy ${objectKey(policy)}`, root) ?? "";
  return { backendTLS: { ...rest, root: granted } };
}

export type FoundBackend =
  | {
      readonly backend: Readonly<Record<string, unknown>>;
      readonly reference: ObjectReference;
      /** The name of the Service's port. */
      readonly portName?: string;
      /** Names the source of the policies in `backend`. */
      readonly policySource?: string;
      /** Gives the reason if the reference is valid but the backend must not be used. */
      readonly closed?: string;
    }
  | {
      readonly reason: "InvalidKind" | "BackendNotFound" | "RefNotPermitted" | "UnsupportedProtocol" | "InvalidBackend";
      readonly message: string;
    };

export type FindBackend = (reference: Fields, namespace: string) => FoundBackend;

/** This `appProtocol` of a Service port selects HTTP/2 over cleartext. */
const H2C = "kubernetes.io/h2c";

type Services = ResourceInput["standalone"]["services"];

export function backendsOfFiles(
  services: Services,
  documents: readonly ResourceDocument[],
  route: ResourceDocument,
): FindBackend {
  return (reference, namespace) => {
    if (isOwnBackend(reference)) {
      const place = placeOf(reference, namespace);
      const found = documents.find((document) => {
        const identity = identityOf(document);
        return identity.kind === "Backend" && `${identity.namespace}/${identity.name}` === place.key;
      });
      return resolved(found?.value, place, namespace, route, undefined);
    }
    const kind = textOf(reference.kind) ?? "Service";
    const name = textOf(reference.name) ?? "";
    const inNamespace = textOf(reference.namespace) ?? namespace;
    if (kind !== "Service") return { reason: "InvalidKind", message: `${kind} is not supported: use Service` };
    const port = reference.port === undefined ? "" : `:${String(reference.port)}`;
    const candidates = [`${inNamespace}/${name}${port}`, `${inNamespace}/${name}`, `${name}${port}`, name];
    const found = candidates.map((key) => services[key]).find((service) => service !== undefined);
    if (found === undefined) {
      const near = nearestName(name, Object.keys(services).map(serviceName));
      return {
        reason: "BackendNotFound",
        message: `Service ${inNamespace}/${name} was not found${near === undefined || near === name ? "" : ` (did you mean "${near}"?)`}: add it to \`services\` of the standalone document, for example \`${name}${port}: 127.0.0.1:8080\``,
      };
    }
    const http2 = identityOf(route).kind === "GRPCRoute" ? { protocol: "h2c" } : {};
    const target = { reference: serviceReference(inNamespace, name), policySource: "the standalone configuration" };
    if (typeof found !== "string") return { backend: { ...http2, ...found }, ...target };
    return { backend: { host: found.includes(":") || port === "" ? found : `${found}${port}`, ...http2 }, ...target };
  };
}

function serviceName(key: string): string {
  return key.slice(key.indexOf("/") + 1).replace(/:\d+$/, "");
}

export function backendsOfCluster(cluster: Cluster, route: ResourceDocument): FindBackend {
  const { kind: routeKind } = identityOf(route);
  const isGrpc = routeKind === "GRPCRoute";
  return (reference, namespace) => {
    if (isOwnBackend(reference)) {
      const place = placeOf(reference, namespace);
      const to = { group: POLICY_API_GROUP, kind: "Backend", namespace: place.namespace, name: place.name };
      if (!cluster.mayRefer({ group: GATEWAY_API_GROUP, kind: routeKind, namespace }, to))
        return notPermitted(`Backend ${place.key}`);
      return resolved(cluster.object("Backend", place.namespace, place.name), place, namespace, route, cluster);
    }
    const group = textOf(reference.group) ?? "";
    const kind = textOf(reference.kind) ?? "Service";
    const name = textOf(reference.name) ?? "";
    const inNamespace = textOf(reference.namespace) ?? namespace;
    if (kind !== "Service" || group !== "")
      return {
        reason: "InvalidKind",
        message: `${group === "" ? "" : `${group}/`}${kind} is not supported: use Service, or Backend of ${POLICY_API_GROUP}`,
      };
    const shown = `Service ${inNamespace}/${name}`;
    const from = { group: GATEWAY_API_GROUP, kind: routeKind, namespace };
    if (!cluster.mayRefer(from, { group, kind, namespace: inNamespace, name })) return notPermitted(shown);
    const service = cluster.service(inNamespace, name, reference.port);
    if (service === undefined) return { reason: "BackendNotFound", message: `${shown} was not found` };
    // With an ExternalName Service, a tenant could choose a host name that only the gateway can reach.
    if (service.type === "ExternalName")
      return { reason: "UnsupportedProtocol", message: `${shown} is of type ExternalName, which is not supported` };
    if (service.port === undefined)
      return { reason: "BackendNotFound", message: `${shown} has no TCP port ${String(reference.port)}` };
    const { port, appProtocol, name: portName } = service.port;
    const own = { service: { name: `${inNamespace}/${name}:${port}` } };
    const tls = tlsOfService(cluster, route, { namespace: inNamespace, name, port: portName });
    const isHttp2 = appProtocol === H2C || isGrpc;
    const target = { reference: serviceReference(inNamespace, name), portName, policySource: "a BackendTLSPolicy" };
    if (tls === undefined) return { backend: { ...own, ...(isHttp2 ? { protocol: "h2c" } : {}) }, ...target };
    const closed = "closed" in tls ? { closed: tls.closed } : {};
    const policies = "closed" in tls ? {} : { policies: tls };
    return { backend: { ...own, ...policies, ...(isGrpc ? { protocol: "h2" } : {}) }, ...closed, ...target };
  };
}

function serviceReference(namespace: string, name: string): ObjectReference {
  return { group: "", kind: "Service", namespace, name };
}

interface Place {
  readonly namespace: string;
  readonly name: string;
  /** The format is `namespace/name`. */
  readonly key: string;
}

function isOwnBackend({ group, kind }: Fields): boolean {
  return group === POLICY_API_GROUP && kind === "Backend";
}

function placeOf(reference: Fields, namespace: string): Place {
  const name = textOf(reference.name) ?? "";
  const inNamespace = textOf(reference.namespace) ?? namespace;
  return { namespace: inNamespace, name, key: `${inNamespace}/${name}` };
}

function notPermitted(shown: string): FoundBackend {
  return {
    reason: "RefNotPermitted",
    message: `${shown} is in another namespace, whose ReferenceGrants do not allow this`,
  };
}

function resolved(
  found: unknown,
  { namespace, name, key }: Place,
  referrer: string,
  route: ResourceDocument,
  cluster: Cluster | undefined,
): FoundBackend {
  if (found === undefined) return { reason: "BackendNotFound", message: `Backend ${key} was not found` };
  const read = readBackend(found, namespace, route, cluster);
  if ("backend" in read) {
    const closed = cluster && closedByTlsPolicy(cluster, "Backend", namespace, name);
    return {
      backend: read.backend,
      reference: { group: POLICY_API_GROUP, kind: "Backend", namespace, name },
      ...(closed === undefined ? {} : { closed, policySource: "a BackendTLSPolicy" }),
    };
  }
  // The problem of a document in another namespace is not shown to the referrer.
  const why = namespace === referrer ? `: ${pathText(read.path)}: ${read.message}` : "";
  return { reason: "InvalidBackend", message: `Backend ${key} is not valid${why}` };
}
