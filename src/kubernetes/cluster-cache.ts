/**
 * Everything that is watched, in one place. Nobody looks before all kinds were listed once: half a cluster would look
 * like routes that were deleted.
 */
import type { Clock, Timer } from "../base/clock.ts";
import {
  isKubernetesObject,
  type KubernetesObject,
  keyOf,
  type ObjectMetadata,
  objectKey,
} from "../config/documents/cluster.ts";
import { GATEWAY_API_GROUP, POLICY_API_GROUP } from "../config/documents/documents.ts";
import { fieldsOf } from "../config/text/value-shapes.ts";
import type { Logger } from "../observe/log/logger.ts";
import { type ApiClient, ApiError, apiError } from "./api-client.ts";

interface ClusterCache {
  isSynced(): boolean;
  /** Kinds that were not listed yet. */
  waitingFor(): string[];
  all(): KubernetesObject[];
  of(kind: string): KubernetesObject[];
  stop(): void;
}

interface CacheParts {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
  /** Something changed; called often. */
  changed(): void;
  /** Only the status of an object. */
  statusChanged(): void;
}

export function openClusterCache(kinds: readonly WatchedKind[], parts: CacheParts): ClusterCache {
  const watches = kinds.map((kind) => watchKind(kind, parts));
  return {
    isSynced: () => watches.every((watch) => watch.isSynced()),
    waitingFor: () => watches.filter((watch) => !watch.isSynced()).map((watch) => watch.kind.kind),
    all: () => watches.flatMap((watch) => [...watch.objects()]),
    of: (kind) => watches.filter((watch) => watch.kind.kind === kind).flatMap((watch) => [...watch.objects()]),
    stop() {
      for (const watch of watches) watch.stop();
    },
  };
}

/**
 * One kind, kept in step with the API server: listed in pages, then watched from there. A watch that ends is resumed
 * where it stopped, with growing pauses; only when the server no longer knows the place (410) everything is listed again.
 * What was known stays known while the server is away.
 */

const PAGE = 500;
/** The server ends a watch after this long; shorter than the time after which load balancers drop silent connections. */
const WATCH_SECONDS = 240;
/** Bookmarks come about once a minute: a watch that is silent for longer than it may last is dead. */
const SILENT_MS = (WATCH_SECONDS + 30) * 1000;
/** Short, because changes made while the server was away must arrive within seconds of its return. */
const MAX_PAUSE_MS = 2_000;
const FIRST_PAUSE_MS = 200;
/** A kind whose definition is not installed is asked for again at leisure. */
const ABSENT_PAUSE_MS = 10_000;

interface KindWatch {
  readonly kind: WatchedKind;
  /** Whether a whole list was seen, or the kind does not exist. */
  isSynced(): boolean;
  objects(): Iterable<KubernetesObject>;
  stop(): void;
}

interface KindWatchParts {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
  changed(): void;
  /** Only the status of an object, which the object itself now has. */
  statusChanged(): void;
}

export function watchKind(kind: WatchedKind, parts: KindWatchParts): KindWatch {
  const { client, clock, logger } = parts;
  let objects = new Map<string, KubernetesObject>();
  let version: string | undefined;
  let isSynced = false;
  let isStopped = false;
  let failures = 0;
  let timer: Timer | undefined;
  let endWatch = (): void => undefined;

  async function list(): Promise<void> {
    const found = new Map<string, KubernetesObject>();
    let next: string | undefined;
    let listed: string | undefined;
    do {
      const query = [
        `limit=${PAGE}`,
        ...(next ? [`continue=${encodeURIComponent(next)}`] : []),
        ...((kind.query ?? "") ? [kind.query] : []),
      ];
      const page = (await client.request({ method: "GET", path: `${pathOfKind(kind)}?${query.join("&")}` })) as {
        metadata?: { resourceVersion?: string; continue?: string };
        items?: readonly unknown[];
      };
      for (const item of page.items ?? []) {
        const object = keptParts(item as KubernetesObject, kind);
        if (object && isKubernetesObject(object)) found.set(objectKey(object), object);
      }
      listed = page.metadata?.resourceVersion;
      next = page.metadata?.continue;
    } while (next);
    if (isStopped) return;
    objects = found;
    version = listed;
    isSynced = true;
    parts.changed();
  }

  function watch(): void {
    const query = [
      "watch=1",
      "allowWatchBookmarks=true",
      `timeoutSeconds=${Math.round(WATCH_SECONDS * (0.8 + 0.2 * parts.random()))}`,
      `resourceVersion=${encodeURIComponent(version ?? "")}`,
      ...((kind.query ?? "") ? [kind.query] : []),
    ];
    endWatch = client.watch(`${pathOfKind(kind)}?${query.join("&")}`, { event: take, end: again }, SILENT_MS);
  }

  function take(event: unknown): void {
    const { type, object } = (event ?? {}) as { type?: unknown; object?: unknown };
    if (type === "ERROR") {
      endWatch();
      again(apiError(500, object));
      return;
    }
    if (typeof object !== "object" || object === null) return;
    const { metadata } = object as Partial<KubernetesObject>;
    failures = 0;
    version = metadata?.resourceVersion ?? version;
    if (type === "BOOKMARK" || metadata?.name === undefined) return;
    const known = type === "DELETED" ? undefined : keptParts(object as KubernetesObject, kind);
    const key = keyOf(metadata.namespace ?? "", metadata.name);
    const before = objects.get(key);
    if (before && known && kind.isReported === true && isSameButStatus(before, known)) {
      // Whoever holds the object sees its new status, and what was made from the rest of it is still right.
      Object.assign(before, { status: undefined }, known);
      parts.statusChanged();
      return;
    }
    if (known === undefined) objects.delete(key);
    else if (isKubernetesObject(known)) objects.set(key, known);
    // Most changes of a kind of which little is used are no change.
    const isNews = kind.used === undefined || JSON.stringify(before?.data) !== JSON.stringify(known?.data);
    if (isNews) parts.changed();
  }

  function again(error: Error | undefined): void {
    if (isStopped) return;
    const isGone = error instanceof ApiError && (error.status === 410 || error.reason === "Expired");
    if (isGone) version = undefined;
    const isAbsent = error instanceof ApiError && error.status === 404 && kind.isOptional === true;
    if (isAbsent && (!isSynced || objects.size > 0)) {
      // Whoever takes a definition away takes its objects away.
      objects = new Map();
      isSynced = true;
      version = undefined;
      parts.changed();
    }
    if (error === undefined) failures = 0;
    else if (!isGone) failures += 1;
    if (error !== undefined && failures === 1 && !isAbsent)
      logger.warn("the watch of a kind was interrupted", { kind: kind.kind, reason: error.message });
    const growing = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(failures, 10));
    const pause = isAbsent ? ABSENT_PAUSE_MS : error === undefined || isGone ? FIRST_PAUSE_MS : growing;
    timer = clock.after(pause * (0.5 + 0.5 * parts.random()), run);
  }

  function run(): void {
    if (isStopped) return;
    if (version !== undefined) watch();
    else
      list().then(
        () => {
          if (!isStopped) watch();
        },
        (error: Error) => again(error),
      );
  }

  run();
  return {
    kind,
    isSynced: () => isSynced,
    objects: () => objects.values(),
    stop() {
      isStopped = true;
      timer?.cancel();
      endWatch();
    },
  };
}

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
