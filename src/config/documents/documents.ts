/**
 * The input and output of the translation of resource documents (GatewayPolicy, Gateway, HTTPRoute). The functions in
 * this folder are pure: documents come from files or from a cluster, and the caller writes the statuses. An invalid
 * document never throws; it gets a status and a problem with its position and name, and does not affect the others.
 */
import type { z } from "zod";
import { ConfigError } from "../../core/config-error.ts";
import type { PolicyDefinition } from "../../core/policy.ts";
import type { Redaction } from "../../observe/trace/redact.ts";
import { type Path, pathText } from "../text/value-path.ts";
import { isObject, textOf } from "../text/value-shapes.ts";
import type { SourceDocument } from "../text/yaml-source.ts";
import type { Cluster } from "./cluster.ts";

/** The API group of our own kinds. */
export const POLICY_API_GROUP = "policy.gateway.internal";
export const POLICY_API_VERSION = `${POLICY_API_GROUP}/v1alpha1`;
export const GATEWAY_API_GROUP = "gateway.networking.k8s.io";
/** The controller name in statuses; other controllers write their own entries. */
export const CONTROLLER_NAME = `${POLICY_API_GROUP}/gateway`;
/** The namespace of standalone gateways and routes, and of documents without one. */
export const DEFAULT_NAMESPACE = "default";

/** One parsed document that has a `kind`; for documents of a cluster, `file` says where they came from. */
export type ResourceDocument = SourceDocument;

/** A gateway or route of the standalone configuration that policies may target. */
export interface StandaloneTarget {
  readonly name: string;
  /** Its own policy kinds, which take precedence over those of documents. */
  readonly policyKinds: readonly string[];
  /** For routes: the gateways that serve it. */
  readonly gateways?: readonly string[];
  /** For gateways: ports that a Gateway document cannot use. */
  readonly port?: number;
}

export interface ResourceInput {
  readonly documents: readonly ResourceDocument[];
  readonly standalone: {
    readonly gateways: readonly StandaloneTarget[];
    readonly routes: readonly StandaloneTarget[];
    /**
     * `services` of the standalone document: what stands behind a backend reference to a Service. The key is
     * `name`, `name:port`, `namespace/name` or `namespace/name:port`; the value `host:port` or a backend as written.
     */
    readonly services: Readonly<Record<string, string | Readonly<Record<string, unknown>>>>;
  };
  /** The list of all policies, for their schemas and roles. */
  readonly policies: readonly PolicyDefinition[];
  /** The schema of an entry of `routes[]`, which validates translated routes. */
  readonly routeSchema: z.ZodType;
  /** Which headers are sensitive besides the usual ones: the specs that come back are to be shown. */
  readonly redaction?: Redaction;
  /** Wall clock, for lastTransitionTime. */
  readonly nowMs: number;
  /** Set if the documents come from a cluster; they cannot access this machine. */
  readonly cluster?: Cluster;
  /** Returns the cluster for one document, to record the objects that it uses. */
  recorded?(document: ResourceDocument, cluster: Cluster): Cluster;
  /** The result of the last load: unchanged conditions keep their time. */
  readonly previous?: readonly PolicyResource[];
}

export interface ResourceResult {
  /** From Gateway documents: gateways in the written form of the standalone configuration. */
  readonly gateways: readonly WrittenGateway[];
  /** From HTTPRoute documents, one for each rule. */
  readonly routes: readonly WrittenRoute[];
  /** Policies to compile on a gateway or route besides its own, in this order. They are valid by their schemas. */
  readonly attachments: readonly Attachment[];
  /** Targets that reject every request with `policy_invalid` until the document is fixed. */
  readonly closures: readonly Closure[];
  /** The outcome of each Gateway and HTTPRoute, for its status. */
  readonly gatewayOutcomes: readonly GatewayOutcome[];
  readonly routeOutcomes: readonly RouteOutcome[];
  readonly backendOutcomes: readonly BackendOutcome[];
  /** Every GatewayPolicy with its status, in the order of the documents. */
  readonly policies: readonly PolicyResource[];
  /** Problems in documents, logged as warnings; they never prevent the start. */
  readonly problems: readonly ConfigError[];
}

export interface WrittenGateway {
  /** The key under `gateways`: the document's name, or `name/listener` where it has several ports. */
  readonly name: string;
  readonly port: number;
  readonly protocol: "HTTP" | "HTTPS";
  readonly tls?: {
    readonly certificates: readonly ListenerCertificate[];
    /** Host names of listeners on the same port: a connection for one is not used for another. */
    readonly parts?: readonly string[];
  };
  readonly document: ResourceDocument;
  /** The listener in its document. */
  readonly path: Path;
}

export interface ListenerCertificate {
  readonly cert: string;
  readonly key: string;
  /** The host names of the certificate; if absent, those in it. */
  readonly hosts?: readonly string[];
}

export interface WrittenRoute {
  /** An entry of `routes[]` as it would be written in the standalone document. */
  readonly route: {
    readonly name: string;
    readonly gateways: readonly string[];
    readonly hostnames?: readonly string[];
    readonly matches?: readonly Record<string, unknown>[];
    readonly policies?: Readonly<Record<string, unknown>>;
    readonly backends?: readonly Record<string, unknown>[];
  };
  /** Why every request is rejected, if a part of the rule is not supported. */
  readonly closed?: string;
  /** Host names that belong to other listeners of the same port. */
  readonly except?: readonly string[];
  /** Unresolved backend references by index, with the reason. */
  readonly closedBackends?: ReadonlyMap<number, string>;
  readonly document: ResourceDocument;
  /** The rule in its document. */
  readonly path: Path;
}

/** A status condition without its time. */
export interface Verdict {
  readonly isTrue: boolean;
  readonly reason: string;
  readonly message: string;
}

export interface GatewayOutcome {
  readonly document: ResourceDocument;
  readonly accepted: Verdict;
  readonly listeners: readonly ListenerOutcome[];
}

export interface ListenerOutcome {
  readonly name: string;
  readonly supportedKinds: readonly { readonly group: string; readonly kind: string }[];
  readonly accepted: Verdict;
  readonly resolvedRefs: Verdict;
  readonly conflicted: Verdict;
  /** The routes that it serves. */
  attachedRoutes: number;
}

export interface RouteOutcome {
  readonly document: ResourceDocument;
  readonly parents: readonly ParentOutcome[];
}

export interface ParentOutcome {
  /** The route's parentRef, unmodified. The route status must echo it. */
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
  readonly kind: "gateway" | "route";
  /** The key under `gateways`, or the route's name. */
  readonly name: string;
}

export interface Attachment {
  readonly target: TargetName;
  readonly kind: string;
  /** The validated configuration for `PolicyDefinition.compile`. */
  readonly config: unknown;
  /** The same as it would be written under `policies`: for dumps, where the schema says what is secret. */
  readonly written: unknown;
  /**
   * To be passed as `CompileEnv.owner`. Equal for all listeners of one Gateway and all rules of one HTTPRoute, so
   * that they share one set of buckets, and different from the target's own policies.
   */
  readonly owner: string;
  readonly document: ResourceDocument;
  /** The part in its document, for example `spec.traffic.rateLimit`. */
  readonly path: Path;
}

export interface Closure {
  readonly target: TargetName;
  readonly document: ResourceDocument;
  /** Names the policy and the field: for the log and the trace, not for clients. */
  readonly reason: string;
}

export interface PolicyResource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ResourceMetadata;
  /** As written, with secrets replaced. */
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
  /** RFC 3339; changes only when `status` does. */
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
  /** Empty if there is none. */
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

export function fullName(document: ResourceDocument): string {
  const { namespace, name } = identityOf(document);
  return `${namespace}/${name === "" ? "(no name)" : name}`;
}

export function referenceText({ kind, namespace, name }: ObjectReference): string {
  return `${kind} ${namespace}/${name}`;
}
