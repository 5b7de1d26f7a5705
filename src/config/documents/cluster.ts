/**
 * Provides an immutable view of the objects of a cluster for the translation of documents.
 */
import { defined } from "../../json/json.ts";
import type { Path } from "../text/value-path.ts";
import { type Fields, fieldsOf, isObject, listOf, textOf } from "../text/value-shapes.ts";

interface ClusterService {
  readonly port: ServicePort | undefined;
  readonly type: string;
}

export interface Cluster {
  service(namespace: string, name: string, port: unknown): ClusterService | undefined;
  object(kind: string, namespace: string, name: string): KubernetesObject | undefined;
  objects(kind: string): readonly KubernetesObject[];
  /** Returns the BackendTLSPolicies of the namespace with a reference to this name, of whatever kind. */
  tlsPolicies(namespace: string, name: string): readonly KubernetesObject[];
  secret(namespace: string, name: string): ReadonlyMap<string, string> | undefined;
  mayRefer(from: Referrer, to: Referent): boolean;
  namespaceFits(namespace: string, selector: unknown): boolean;
}

export function createCluster(objects: readonly KubernetesObject[]): Cluster {
  const byKind = new Map<string, Map<string, KubernetesObject>>();
  for (const object of objects) {
    const known = byKind.get(object.kind) ?? new Map<string, KubernetesObject>();
    known.set(objectKey(object), object);
    byKind.set(object.kind, known);
  }
  const list = (kind: string): KubernetesObject[] => [...(byKind.get(kind)?.values() ?? [])];
  const grants = list("ReferenceGrant").filter(({ apiVersion }) => groupOf(apiVersion) === "gateway.networking.k8s.io");
  const find = (kind: string, namespace: string, name: string): KubernetesObject | undefined =>
    byKind.get(kind)?.get(keyOf(namespace, name));

  const tlsPolicies = new Map<string, KubernetesObject[]>();
  for (const policy of list("BackendTLSPolicy"))
    for (const name of new Set(tlsTargets(policy).map(({ reference }) => reference.name))) {
      const key = keyOf(policy.metadata.namespace ?? "", name);
      tlsPolicies.set(key, [...(tlsPolicies.get(key) ?? []), policy]);
    }

  return {
    service(namespace, name, port) {
      const service = find("Service", namespace, name);
      if (service === undefined) return undefined;
      return { port: portOf(service, port), type: String(specOf(service).type ?? "ClusterIP") };
    },
    object: find,
    objects: list,
    tlsPolicies: (namespace, name) => tlsPolicies.get(keyOf(namespace, name)) ?? [],
    secret(namespace, name) {
      const secret = find("Secret", namespace, name);
      return secret && textsOf(secret);
    },
    mayRefer: (from, to) => isGranted(grants, from, to),
    namespaceFits(namespace, selector) {
      const labels = find("Namespace", "", namespace)?.metadata.labels;
      return selectsLabels(selector, (labels ?? {}) as Labels);
    },
  };
}

/** The Gateway API allows at most 16 targets. */
const MAX_TLS_TARGETS = 16;

/** A target of a BackendTLSPolicy as written, also in places where the author probably meant one. */
export interface TlsTarget {
  readonly path: Path;
  readonly reference: Required<Referent>;
  /** Names a port. Undefined means all ports. */
  readonly sectionName: string | undefined;
  /** Set if the entry is in a place that has no effect. */
  readonly misplaced?: string;
}

export function tlsTargets(policy: KubernetesObject): TlsTarget[] {
  const { targetRefs, targetRef } = specOf(policy);
  const target = (written: unknown, path: Path, misplaced?: string): TlsTarget => {
    const { group = "", kind = "", name = "", namespace = policy.metadata.namespace, sectionName } = fieldsOf(written);
    return {
      path,
      reference: { group: String(group), kind: String(kind), namespace: String(namespace ?? ""), name: String(name) },
      sectionName: sectionName === undefined ? undefined : String(sectionName),
      ...defined({ misplaced }),
    };
  };
  const list = ["spec", "targetRefs"];
  return [
    ...listOf(targetRefs).map((one, i) =>
      target(one, [...list, i], i < MAX_TLS_TARGETS ? undefined : `at most ${MAX_TLS_TARGETS} targets are allowed`),
    ),
    ...(isObject(targetRefs) ? [target(targetRefs, list, "expected a list")] : []),
    ...(targetRef === undefined ? [] : [target(targetRef, ["spec", "targetRef"], "unknown field: use targetRefs")]),
  ];
}

export const INFERENCE_GROUP = "inference.networking.k8s.io";
export const POOL_KIND = "InferencePool";

/** Names the endpoints of an InferencePool, which cannot be confused with those of a Service. */
export function poolEndpointsName(namespace: string, name: string): string {
  return `inferencepool/${keyOf(namespace, name)}`;
}

/**
 * Maps `namespace/name:port` of each TCP port of a Service, and the name of each InferencePool's endpoints, to addresses.
 */
export function allEndpoints(objects: readonly KubernetesObject[]): ReadonlyMap<string, readonly string[]> {
  const slices = new Map<string, KubernetesObject[]>();
  for (const object of objects) {
    const service = object.metadata.labels?.[SERVICE_LABEL];
    if (object.kind !== "EndpointSlice" || service === undefined) continue;
    const key = keyOf(object.metadata.namespace ?? "", service);
    slices.set(key, [...(slices.get(key) ?? []), object]);
  }
  const result = new Map<string, readonly string[]>();
  for (const object of objects) {
    if (object.kind !== "Service") continue;
    const own = slices.get(objectKey(object)) ?? [];
    for (const { port } of (specOf(object).ports ?? []) as readonly { readonly port?: unknown }[]) {
      const found = portOf(object, port);
      if (found) result.set(`${objectKey(object)}:${found.port}`, endpointsOf(own, found));
    }
  }
  const pods = new Map<string, KubernetesObject[]>();
  for (const object of objects) {
    if (object.kind !== "Pod") continue;
    const namespace = object.metadata.namespace ?? "";
    const known = pods.get(namespace);
    if (known === undefined) pods.set(namespace, [object]);
    else known.push(object);
  }
  for (const object of objects) {
    const { namespace = "", name } = object.metadata;
    if (object.kind === POOL_KIND)
      result.set(poolEndpointsName(namespace, name), poolEndpoints(object, pods.get(namespace) ?? []));
  }
  return result;
}

/** The pods are those that `readyPod` returned. */
function poolEndpoints(pool: KubernetesObject, pods: readonly KubernetesObject[]): readonly string[] {
  const { selector, targetPorts } = specOf(pool);
  // A selector without labels would select every pod of the namespace.
  if (Object.keys(fieldsOf(fieldsOf(selector).matchLabels)).length === 0) return [];
  const ports = listOf(targetPorts).map((port) => fieldsOf(port).number);
  return pods
    .flatMap(({ data }) => {
      const { labels, ip } = fieldsOf(data);
      if (!selectsLabels(selector, fieldsOf(labels) as Labels)) return [];
      const host = String(ip).includes(":") ? `[${String(ip)}]` : String(ip);
      return ports.map((port) => `${host}:${String(port)}`);
    })
    .sort();
}

/** Selects the parts of a pod that InferencePools need. Returns undefined if the pod gets no requests. */
export function readyPod({ metadata, status }: KubernetesObject): Readonly<Record<string, unknown>> | undefined {
  const { podIP, conditions } = fieldsOf(status);
  const isReady = listOf(conditions)
    .map(fieldsOf)
    .some((condition) => condition.type === "Ready" && condition.status === "True");
  if (!isReady || textOf(podIP) === undefined || metadata.deletionTimestamp !== undefined) return undefined;
  return { data: { labels: metadata.labels ?? {}, ip: podIP } };
}

function textsOf({ data }: KubernetesObject): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(fieldsOf(data)).flatMap(([key, value]) =>
      typeof value === "string" ? [[key, Buffer.from(value, "base64").toString()] as const] : [],
    ),
  );
}

type Labels = Readonly<Record<string, string>>;

export function selectsLabels(selector: unknown, labels: Labels): boolean {
  if (!isObject(selector)) return false;
  const own = new Map(Object.entries(labels));
  const { matchLabels, matchExpressions } = selector;
  return (
    Object.entries(fieldsOf(matchLabels)).every(([key, value]) => own.get(key) === value) &&
    listOf(matchExpressions).every((expression) => holds(expression, own))
  );
}

function holds(expression: unknown, labels: ReadonlyMap<string, string>): boolean {
  const { key, operator, values } = fieldsOf(expression);
  const name = textOf(key);
  if (name === undefined) return false;
  const value = labels.get(name);
  const isListed = value !== undefined && listOf(values).includes(value);
  switch (operator) {
    case "In":
      return isListed;
    case "NotIn":
      return !isListed;
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
    default:
      return false;
  }
}

const SERVICE_LABEL = "kubernetes.io/service-name";

interface ServicePort {
  /** Empty if the port has no name. */
  readonly name: string;
  readonly port: number;
  readonly appProtocol: string | undefined;
}

/** Returns the names of the Service's TCP ports. */
export function portNames(service: KubernetesObject): string[] {
  return listOf(specOf(service).ports)
    .map(fieldsOf)
    .flatMap(({ name, protocol = "TCP" }) => (protocol === "TCP" && name !== "" ? (textOf(name) ?? []) : []));
}

function portOf(service: KubernetesObject, port: unknown): ServicePort | undefined {
  for (const one of listOf(specOf(service).ports)) {
    const fields = fieldsOf(one);
    const protocol = textOf(fields.protocol) ?? "TCP";
    if (typeof port === "number" && fields.port === port && protocol === "TCP")
      return { name: textOf(fields.name) ?? "", port, appProtocol: textOf(fields.appProtocol) };
  }
  return undefined;
}

/** Returns sorted `address:port` values without duplicates. */
function endpointsOf(slices: readonly KubernetesObject[], port: ServicePort): readonly string[] {
  const ready = new Set<string>();
  // If no endpoint is ready, endpoints that still serve are used.
  const ending = new Set<string>();
  for (const slice of slices) {
    if (slice.addressType !== "IPv4" && slice.addressType !== "IPv6") continue;
    const target = listOf(slice.ports)
      .map(fieldsOf)
      .find((one) => (textOf(one.name) ?? "") === port.name)?.port;
    if (typeof target !== "number") continue;
    for (const endpoint of listOf(slice.endpoints).map(fieldsOf)) {
      const conditions = fieldsOf(endpoint.conditions);
      const into = conditions.ready !== false ? ready : conditions.serving === true ? ending : undefined;
      for (const address of listOf(endpoint.addresses))
        if (typeof address === "string") into?.add(`${address.includes(":") ? `[${address}]` : address}:${target}`);
    }
  }
  return [...(ready.size > 0 ? ready : ending)].sort();
}

export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ObjectMetadata;
  readonly [field: string]: unknown;
}

export interface ObjectMetadata {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly generation?: number;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly [field: string]: unknown;
}

/** Returns `namespace/name`, or `/name` for cluster-scoped objects. */
export function objectKey(object: KubernetesObject): string {
  return keyOf(object.metadata.namespace ?? "", object.metadata.name);
}

export function keyOf(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

export function specOf(object: KubernetesObject | undefined): Fields {
  return fieldsOf(object?.spec);
}

/** Returns an empty group for `v1`. */
export function groupOf(apiVersion: string): string {
  const slash = apiVersion.indexOf("/");
  return slash < 0 ? "" : apiVersion.slice(0, slash);
}

export function isKubernetesObject(value: unknown): value is KubernetesObject {
  const { apiVersion, kind, metadata } = fieldsOf(value);
  return (
    textOf(apiVersion) !== undefined && textOf(kind) !== undefined && textOf(fieldsOf(metadata).name) !== undefined
  );
}

export interface Referrer {
  readonly group: string;
  readonly kind: string;
  readonly namespace: string;
}

export interface Referent {
  readonly group: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

export function isGranted(grants: readonly KubernetesObject[], from: Referrer, to: Referent): boolean {
  if (from.namespace === to.namespace) return true;
  return grants.some((grant) => grant.metadata.namespace === to.namespace && says(grant, from, to));
}

function says(grant: KubernetesObject, from: Referrer, to: Referent): boolean {
  const spec = specOf(grant);
  const isFrom = listOf(spec.from).some((one) => {
    const { group, kind, namespace } = fieldsOf(one);
    return group === from.group && kind === from.kind && namespace === from.namespace;
  });
  // A grant without a name applies to all objects of the kind. A name that is not a string grants nothing.
  const isTo = listOf(spec.to).some(
    (one) =>
      isObject(one) &&
      one.group === to.group &&
      one.kind === to.kind &&
      (one.name === undefined || one.name === "" || textOf(one.name) === to.name),
  );
  return isFrom && isTo;
}
