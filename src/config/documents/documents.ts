/**
 * Defines the input and output of the translation of resource documents, such as GatewayPolicy and HTTPRoute.
 */
import type { z } from "zod";
import { Owner } from "../../base/owner.ts";
import { ConfigError } from "../../core/config-error.ts";
import type { PolicyDefinition } from "../../core/policy.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import { type Path, pathText } from "../text/value-path.ts";
import { isObject, textOf } from "../text/value-shapes.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import type { Cluster } from "./cluster.ts";

export const POLICY_API_GROUP = "policy.gateway.internal";
export const POLICY_API_VERSION = `${POLICY_API_GROUP}/v1alpha1`;
/** Listeners in a cluster cannot use these ports of the admin interface and of health and metrics. */
export const DATA_PLANE_PORTS: readonly number[] = [15_000, 15_020];
export const GATEWAY_API_GROUP = "gateway.networking.k8s.io";
/** Statuses contain this name, because other controllers write their own entries. */
export const CONTROLLER_NAME = `${POLICY_API_GROUP}/gateway`;
/** Standalone gateways and routes, and documents without a namespace, belong to this namespace. */
export const DEFAULT_NAMESPACE = "default";

/** A `kind` separates resource documents from the standalone configuration. */
export type ResourceDocument = SourceDocument;

export interface StandaloneTarget {
  readonly name: string;
  readonly policyKinds: readonly string[];
  readonly gateways?: readonly string[];
  /** A Gateway document cannot use this port of a standalone gateway. */
  readonly port?: number;
  /** True if the gateway forwards connections, to which policies cannot apply. */
  readonly isTcp?: boolean;
}

export interface ResourceInput {
  readonly documents: readonly ResourceDocument[];
  readonly standalone: {
    readonly gateways: readonly StandaloneTarget[];
    readonly routes: readonly StandaloneTarget[];
    /**
     * Maps Services to `host:port` or to a backend as written in the configuration. The key is `name`, `name:port`,
     * `namespace/name`, or `namespace/name:port`.
     */
    readonly services: Readonly<Record<string, string | Readonly<Record<string, unknown>>>>;
  };
  readonly policies: readonly PolicyDefinition[];
  readonly routeSchema: z.ZodType;
  readonly redaction?: Redaction;
  readonly nowMs: number;
  /** Set if the documents come from a cluster. Such documents cannot access this machine. */
  readonly cluster?: Cluster;
  /** Returns the cluster for one document, to record the objects that it uses. */
  recorded?(document: ResourceDocument, cluster: Cluster): Cluster;
  /** Unchanged conditions keep their time from the result of the last load. */
  readonly previous?: readonly PolicyResource[];
}

export interface ResourceResult {
  readonly gateways: readonly WrittenGateway[];
  readonly routes: readonly WrittenRoute[];
  readonly tcpRoutes: readonly WrittenTcpRoute[];
  readonly attachments: readonly Attachment[];
  /** These targets reject requests with `policy_invalid`. */
  readonly closures: readonly Closure[];
  readonly gatewayOutcomes: readonly GatewayOutcome[];
  readonly listenerSetOutcomes: readonly ListenerSetOutcome[];
  readonly routeOutcomes: readonly RouteOutcome[];
  /** Maps each route to the routes that it delegates to, at all levels. */
  readonly childRoutes: ReadonlyMap<ResourceDocument, ReadonlySet<ResourceDocument>>;
  readonly backendOutcomes: readonly BackendOutcome[];
  readonly policies: readonly PolicyResource[];
  readonly problems: readonly ConfigError[];
}

export interface WrittenGateway {
  /**
   * The name is the key under `gateways`: `edge`, `edge/https` with several ports, or `infra/edge:443` in a cluster.
   */
  readonly name: string;
  readonly port: number;
  readonly protocol: "HTTP" | "HTTPS" | "TCP" | "TLS";
  /** Set if the port forwards connections. */
  readonly tcp?: readonly WrittenTcpPart[];
  readonly tls?: {
    readonly certificates: readonly ListenerCertificate[];
    /** Lists the host names of the listeners on the same port. */
    readonly parts?: readonly string[];
    readonly clientAuth?: { readonly ca: string; readonly mode: "require" };
  };
  readonly sections?: readonly WrittenSection[];
  readonly document: ResourceDocument;
  readonly path: Path;
}

/** Describes one listener of a port that forwards connections. */
export interface WrittenTcpPart {
  readonly name: string;
  readonly hostname: string | undefined;
  /** If undefined, the bytes of the client are forwarded unchanged. */
  readonly tls: NonNullable<WrittenGateway["tls"]> | undefined;
  readonly closed?: string;
}

export interface WrittenTcpRoute {
  readonly name: string;
  /** Names the part of a gateway. */
  readonly part: string;
  readonly hostnames: readonly string[];
  readonly backends: readonly WrittenTcpBackend[];
}

export interface WrittenTcpBackend {
  /** Contains `namespace/name:port` of a Service in a cluster, or `host:port` of a Service in a file. */
  readonly name: string;
  readonly isService: boolean;
  readonly weight: number;
  readonly isClosed: boolean;
  readonly use?: BackendUse;
}

/** Describes the listeners of a port that have the same host name. */
export interface WrittenSection {
  readonly name: string;
  readonly hostname: string | undefined;
}

export interface ListenerCertificate {
  readonly cert: string;
  readonly key: string;
  /** If absent, the certificate is used for the names in it. */
  readonly hosts?: readonly string[];
}

export interface WrittenRoute {
  /** Has the form of an entry of `routes[]` in the standalone document. */
  readonly route: {
    readonly name: string;
    readonly gateways: readonly string[];
    readonly hostnames?: readonly string[];
    readonly matches?: readonly Record<string, unknown>[];
    readonly policies?: Readonly<Record<string, unknown>>;
    readonly backends?: readonly Record<string, unknown>[];
  };
  /** Gives the reason if the route rejects its requests. */
  readonly closed?: string;
  /** Other listeners of the same port handle these host names. */
  readonly except?: readonly string[];
  readonly section?: string;
  /** Maps the index of each backend that rejects its requests to the reason. */
  readonly closedBackends?: ReadonlyMap<number, string>;
  /** Describes each backend as a target of policies. Undefined for a reference that was not resolved. */
  readonly uses?: readonly (BackendUse | undefined)[];
  readonly document: ResourceDocument;
  readonly path: Path;
}

export interface BackendUse {
  /** Refers to a Service or a Backend. */
  readonly reference: ObjectReference;
  /** The name of the Service's port. */
  readonly portName: string | undefined;
  /** Maps the kinds of policies that the backend already has to their source. */
  readonly policyKinds: ReadonlyMap<string, string>;
}

export interface Verdict {
  readonly isTrue: boolean;
  readonly reason: string;
  readonly message: string;
}

export interface GatewayOutcome {
  readonly document: ResourceDocument;
  readonly accepted: Verdict;
  readonly listeners: readonly ListenerOutcome[];
  /** Counts the accepted ListenerSets. Undefined if none refers to the Gateway. */
  readonly attachedSets?: number;
  /** Set if the Gateway itself, not one of its listeners, refers to an object. */
  readonly resolvedRefs?: Verdict;
}

export interface ListenerSetOutcome {
  readonly document: ResourceDocument;
  readonly gateway: ObjectReference;
  readonly accepted: Verdict;
  /** Empty if the set is not merged into its Gateway. */
  readonly listeners: readonly ListenerOutcome[];
  /** Lists the ports of accepted listeners. */
  readonly ports: readonly number[];
}

export interface ListenerOutcome {
  readonly name: string;
  readonly supportedKinds: readonly { readonly group: string; readonly kind: string }[];
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  readonly conflicted: Verdict;
  attachedRoutes: number;
}

export interface RouteOutcome {
  readonly document: ResourceDocument;
  readonly parents: readonly ParentOutcome[];
}

export interface ParentOutcome {
  /** The route status must echo the unmodified parentRef. */
  readonly parentRef: Readonly<Record<string, unknown>>;
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  /** Set if a part of the route is not served as written. */
  readonly partiallyInvalid: Verdict | undefined;
}

export interface BackendOutcome {
  readonly document: ResourceDocument;
  readonly accepted: Verdict;
}

export interface TargetName {
  readonly kind: "gateway" | "route" | "backend";
  /** A backend has the name `<route>/backend<index>`. */
  readonly name: string;
}

export interface Attachment {
  readonly target: TargetName;
  readonly kind: string;
  readonly config: unknown;
  /** Holds the configuration as written under `policies`, for dumps. */
  readonly written: unknown;
  /** All listeners or rules of one target reference have the same owner, so that they share rate limits. */
  readonly owner: string;
  readonly document: ResourceDocument;
  readonly path: Path;
}

export interface Closure {
  readonly target: TargetName;
  readonly document: ResourceDocument;
  /** Names the policy and the field, for the log and the trace but not for clients. */
  readonly reason: string;
}

export interface PolicyResource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ResourceMetadata;
  /** Secrets are redacted. */
  readonly spec: unknown;
  readonly status: { readonly ancestors: readonly AncestorStatus[] };
}

export interface ResourceMetadata {
  readonly name: string;
  readonly namespace: string;
  readonly generation: number;
  readonly [field: string]: unknown;
}

export interface ObjectReference {
  readonly group: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

export interface AncestorStatus {
  readonly ancestorRef: ObjectReference;
  readonly controllerName: string;
  readonly conditions: readonly Condition[];
}

export interface Condition {
  readonly type: "Accepted" | "Attached";
  readonly status: "True" | "False";
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration: number;
  /** The time is in RFC 3339 format and changes only when `status` does. */
  readonly lastTransitionTime: string;
}

export interface ProblemList {
  add(path: Path, message: string): ConfigError;
  readonly all: readonly ConfigError[];
}

export function createProblemList(document: ResourceDocument): ProblemList {
  const all: ConfigError[] = [];
  const { kind } = identityOf(document);
  return {
    add(path, message) {
      const error = new ConfigError(
        document.position(path),
        `${kind} ${fullName(document)}: ${pathText(path)}`,
        message,
      );
      all.push(error);
      return error;
    },
    all,
  };
}

export interface Identity {
  readonly apiVersion: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
}

export function identityOf(document: ResourceDocument): Identity {
  const value = isObject(document.value) ? document.value : {};
  const metadata = isObject(value.metadata) ? value.metadata : {};
  return {
    apiVersion: textOf(value.apiVersion) ?? "",
    kind: textOf(value.kind) ?? "",
    namespace: textOf(metadata.namespace) ?? DEFAULT_NAMESPACE,
    name: textOf(metadata.name) ?? "",
  };
}

/** A standalone configuration has one owner, whatever its files are called. Of a document, it is the document itself. */
export function ownerOf(document: SourceDocument): Owner {
  return isObject(document.value) && "kind" in document.value
    ? Owner.ofDocument(identityOf(document), document.confined === undefined)
    : Owner.standalone;
}

export function fullName(document: ResourceDocument): string {
  const { namespace, name } = identityOf(document);
  return `${namespace}/${name === "" ? "(no name)" : name}`;
}

export function referenceText({ kind, namespace, name }: ObjectReference): string {
  return `${kind} ${namespace}/${name}`;
}
