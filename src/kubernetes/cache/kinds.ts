/**
 * The kinds that are watched. Of an object only what is used is kept: a large cluster's bookkeeping would fill the
 * memory.
 */
import type { KubernetesObject, ObjectMetadata } from "../../config/cluster/kubernetes-object.ts";
import { GATEWAY_API_GROUP, POLICY_API_GROUP } from "../../config/resources/documents.ts";
import { fieldsOf } from "../../config/text/value-shapes.ts";

export interface WatchedKind {
  readonly kind: string;
  readonly apiVersion: string;
  readonly plural: string;
  /** The kind may come later: its definition need not be installed. */
  readonly isOptional?: boolean;
  /** Its status is written by the controller, often, and nothing else is made from it. */
  readonly isReported?: boolean;
  /** Further parameters of list and watch. */
  readonly query?: string;
  /** Of a kind that most clusters have many of: the fields that are used; undefined if nothing of it is. */
  readonly used?: (object: KubernetesObject) => Readonly<Record<string, unknown>> | undefined;
}

export const KINDS: readonly WatchedKind[] = [
  { kind: "GatewayClass", apiVersion: `${GATEWAY_API_GROUP}/v1`, plural: "gatewayclasses" },
  { kind: "Gateway", apiVersion: `${GATEWAY_API_GROUP}/v1`, plural: "gateways", isReported: true },
  { kind: "HTTPRoute", apiVersion: `${GATEWAY_API_GROUP}/v1`, plural: "httproutes", isReported: true },
  {
    kind: "GRPCRoute",
    apiVersion: `${GATEWAY_API_GROUP}/v1`,
    plural: "grpcroutes",
    isOptional: true,
    isReported: true,
  },
  { kind: "ReferenceGrant", apiVersion: `${GATEWAY_API_GROUP}/v1beta1`, plural: "referencegrants", isOptional: true },
  { kind: "GatewayPolicy", apiVersion: `${POLICY_API_GROUP}/v1alpha1`, plural: "gatewaypolicies", isOptional: true },
  { kind: "Backend", apiVersion: `${POLICY_API_GROUP}/v1alpha1`, plural: "backends", isOptional: true },
  {
    kind: "BackendTLSPolicy",
    apiVersion: `${GATEWAY_API_GROUP}/v1`,
    plural: "backendtlspolicies",
    isOptional: true,
  },
  { kind: "ConfigMap", apiVersion: "v1", plural: "configmaps", used: certificatesOf },
  { kind: "Namespace", apiVersion: "v1", plural: "namespaces" },
  { kind: "Service", apiVersion: "v1", plural: "services" },
  // Releases of Helm are the largest Secrets of most clusters, and never referred to.
  { kind: "Secret", apiVersion: "v1", plural: "secrets", query: "fieldSelector=type%21%3Dhelm.sh%2Frelease.v1" },
  { kind: "EndpointSlice", apiVersion: "discovery.k8s.io/v1", plural: "endpointslices" },
];

/** What the deployer made: watched so that what somebody deleted comes back. */
export const DEPLOYMENTS: WatchedKind = {
  kind: "Deployment",
  apiVersion: "apps/v1",
  plural: "deployments",
  query: "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dgateway-controller",
};

export function pathOfKind({ apiVersion, plural }: WatchedKind): string {
  return `/${apiVersion.includes("/") ? "apis" : "api"}/${apiVersion}/${plural}`;
}

/** The path of one object, or with `status` that of its status. */
export function pathOfObject(kind: WatchedKind, namespace: string, name: string, status?: "status"): string {
  const { apiVersion, plural } = kind;
  const group = `/${apiVersion.includes("/") ? "apis" : "api"}/${apiVersion}`;
  const within = namespace === "" ? "" : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${group}${within}/${plural}/${encodeURIComponent(name)}${status === undefined ? "" : "/status"}`;
}

/** Items of a list have no kind of their own. Undefined: nothing of it is used. */
export function keptParts(
  object: KubernetesObject,
  { kind, apiVersion, used }: WatchedKind,
): KubernetesObject | undefined {
  const { managedFields: _, ...metadata } = object.metadata;
  if (used === undefined) return { ...object, kind, apiVersion, metadata };
  const fields = used(object);
  const { name, namespace, resourceVersion } = object.metadata;
  return fields && { kind, apiVersion, metadata: { name, namespace, resourceVersion } as ObjectMetadata, ...fields };
}

/** Of ConfigMaps only certificates are used (BackendTLSPolicy). */
function certificatesOf({ data }: KubernetesObject): Readonly<Record<string, unknown>> | undefined {
  const text = fieldsOf(data)["ca.crt"];
  return typeof text === "string" ? { data: { "ca.crt": text } } : undefined;
}

/** Whether two states of an object differ in nothing but its status (and the version that each write changes). */
export function isSameButStatus(one: KubernetesObject, other: KubernetesObject): boolean {
  return withoutStatus(one) === withoutStatus(other);
}

function withoutStatus({ status: _, ...object }: KubernetesObject & { readonly status?: unknown }): string {
  return JSON.stringify({ ...object, metadata: { ...object.metadata, resourceVersion: undefined } });
}
