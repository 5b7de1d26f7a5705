/**
 * Caches the objects of all watched kinds. It is synced when each kind has been listed or does not exist, because a
 * partial cache would look like deleted routes.
 */
import type { Clock, Timer } from "../base/clock.ts";
import {
  INFERENCE_GROUP,
  isKubernetesObject,
  type KubernetesObject,
  keyOf,
  type ObjectMetadata,
  objectKey,
  POOL_KIND,
  readyPod,
} from "../config/documents/cluster.ts";
import { GATEWAY_API_GROUP, POLICY_API_GROUP } from "../config/documents/documents.ts";
import { PARAMETERS_KIND } from "../config/documents/gateway-parameters.ts";
import { fieldsOf } from "../config/text/value-shapes.ts";
import type { Logger } from "../record/log/logger.ts";
import { type ApiClient, ApiError, apiError } from "./api-client.ts";

interface ClusterCache {
  isSynced(): boolean;
  waitingFor(): string[];
  /** Names the kinds of policies that can no longer be read. Their last known objects stay. */
  unreadable(): string[];
  all(): KubernetesObject[];
  of(kind: string): KubernetesObject[];
  /** Reopens all watches, because after an interruption the old ones may be dead without an error. */
  reconnect(): void;
  stop(): void;
}

interface CacheParts {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
  changed(): void;
  statusChanged(): void;
}

export function openClusterCache(kinds: readonly WatchedKind[], parts: CacheParts): ClusterCache {
  const watches: KindWatch[] = [];
  const later = kinds.filter(({ neededFor }) => neededFor !== undefined);
  const isNeeded = ({ neededFor }: WatchedKind): boolean =>
    watches.some(({ kind, objects }) => kind.kind === neededFor && !objects().next().done);
  const changed = (): void => {
    for (const kind of later) {
      const at = watches.findIndex((watch) => watch.kind === kind);
      if (at < 0 && isNeeded(kind)) watches.push(watchKind(kind, parts));
      else if (at >= 0 && !isNeeded(kind)) for (const watch of watches.splice(at, 1)) watch.stop();
    }
    parts.changed();
  };
  for (const kind of kinds) if (kind.neededFor === undefined) watches.push(watchKind(kind, { ...parts, changed }));
  return {
    isSynced: () => watches.every((watch) => watch.isSynced()),
    waitingFor: () => watches.filter((watch) => !watch.isSynced()).map((watch) => watch.kind.kind),
    unreadable: () => watches.filter((watch) => !watch.isReadable()).map((watch) => watch.kind.kind),
    all: () => watches.flatMap((watch) => [...watch.objects()]),
    of: (kind) => watches.filter((watch) => watch.kind.kind === kind).flatMap((watch) => [...watch.objects()]),
    reconnect() {
      for (const watch of watches) watch.reconnect();
    },
    stop() {
      for (const watch of watches) watch.stop();
    },
  };
}

// Lists one kind in pages and then watches it. A watch that ends resumes at its last version, with backoff, and a 410
// starts a new list. The objects stay cached while the server is unavailable.

const PAGE = 500;
const WATCH_SECONDS = 240;
/** A watch without data for longer than its lifetime is dead. */
const SILENT_MS = (WATCH_SECONDS + 30) * 1000;
const MAX_PAUSE_MS = 2_000;
const FIRST_PAUSE_MS = 200;
const ABSENT_PAUSE_MS = 10_000;

interface KindWatch {
  readonly kind: WatchedKind;
  /** True after a complete list, or if the kind does not exist. */
  isSynced(): boolean;
  /** False if the kind protects routes and can no longer be read. */
  isReadable(): boolean;
  objects(): IterableIterator<KubernetesObject>;
  reconnect(): void;
  stop(): void;
}

interface KindWatchParts {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
  changed(): void;
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
  let isWatching = false;
  let isReadable = true;
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
    const isLoss = kind.isProtection === true && [...objects.keys()].some((key) => !found.has(key));
    if (isLoss && !(await isInstalled())) throw removedKind();
    if (isStopped) return;
    objects = found;
    version = listed;
    isSynced = true;
    isReadable = true;
    parts.changed();
  }

  /**
   * Removing a CRD deletes its objects first, and these deletions must not remove protections. If the CRD cannot be
   * read, the deletions count.
   */
  async function isInstalled(): Promise<boolean> {
    const name = `${kind.plural}.${kind.apiVersion.split("/")[0]}`;
    try {
      const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`;
      const { deletionTimestamp } = fieldsOf(fieldsOf(await client.request({ method: "GET", path })).metadata);
      return deletionTimestamp === undefined;
    } catch (error) {
      return !(error instanceof ApiError && error.status === 404);
    }
  }

  async function deleteIfInstalled(key: string, version: string | undefined): Promise<void> {
    const isDeleted = await isInstalled();
    if (isStopped || objects.get(key)?.metadata.resourceVersion !== version) return;
    if (isDeleted) {
      objects.delete(key);
      parts.changed();
    } else if (isWatching) {
      endWatch();
      scheduleRetry(removedKind());
    }
  }

  const removedKind = (): ApiError => new ApiError(404, "NotFound", "the kind is being removed");

  function lose(reason: string): void {
    if (!isReadable) return;
    isReadable = false;
    logger.error("policies cannot be read; the last known ones stay in use", { kind: kind.kind, reason });
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
    isWatching = true;
    endWatch = client.watch(
      `${pathOfKind(kind)}?${query.join("&")}`,
      { event: handleEvent, end: scheduleRetry },
      SILENT_MS,
    );
  }

  function handleEvent(event: unknown): void {
    const { type, object } = (event ?? {}) as { type?: unknown; object?: unknown };
    if (type === "ERROR") {
      endWatch();
      scheduleRetry(apiError(500, object));
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
      // Updates the object in place, so that holders see the new status and results derived from its spec stay valid.
      Object.assign(before, { status: undefined }, known);
      parts.statusChanged();
      return;
    }
    if (known === undefined && kind.isProtection === true && before) {
      void deleteIfInstalled(key, before.metadata.resourceVersion);
      return;
    }
    if (known === undefined) objects.delete(key);
    else if (isKubernetesObject(known)) objects.set(key, known);
    // Most updates change only fields that the cache drops.
    const isNews = kind.used === undefined || JSON.stringify(before?.data) !== JSON.stringify(known?.data);
    if (isNews) parts.changed();
  }

  function scheduleRetry(error: Error | undefined): void {
    if (isStopped) return;
    isWatching = false;
    const isGone = error instanceof ApiError && (error.status === 410 || error.reason === "Expired");
    if (isGone) version = undefined;
    const isRefused = error instanceof ApiError && (error.status === 403 || error.status === 404);
    const isLost =
      isRefused && kind.isProtection === true && isSynced && (objects.size > 0 || kind.isOptional !== true);
    if (isLost) {
      version = undefined;
      lose(error.message);
    }
    const isUnread = isRefused && kind.neededFor !== undefined;
    const isMissing = error instanceof ApiError && error.status === 404 && kind.isOptional === true && !isLost;
    const isAbsent = isMissing || isUnread;
    if (isAbsent && (!isSynced || objects.size > 0)) {
      objects = new Map();
      isSynced = true;
      version = undefined;
      parts.changed();
    }
    if (error === undefined) failures = 0;
    else if (!isGone) failures += 1;
    if (error !== undefined && failures === 1 && !isMissing)
      logger.warn("watch interrupted", { kind: kind.kind, reason: error.message });
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
        (error: Error) => scheduleRetry(error),
      );
  }

  run();
  return {
    kind,
    isSynced: () => isSynced,
    isReadable: () => isReadable,
    objects: () => objects.values(),
    reconnect() {
      if (!isWatching || isStopped) return;
      endWatch();
      watch();
    },
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
  /** True if the cluster may lack the CRD of this kind. */
  readonly isOptional?: boolean;
  /**
   * Deletions are confirmed, and the objects stay if the kind disappears, so that routes do not lose their protection.
   */
  readonly isProtection?: boolean;
  /** True if the controller often writes the status of this kind. A change of only the status calls `statusChanged`. */
  readonly isReported?: boolean;
  readonly query?: string;
  /**
   * Objects of this kind are read only while an object of the named kind exists. Without the right to read them, the
   * controller continues without these objects.
   */
  readonly neededFor?: string;
  /** Selects the fields to keep. If it returns undefined, the object is dropped. */
  readonly used?: (object: KubernetesObject) => Readonly<Record<string, unknown>> | undefined;
}

export const KINDS: readonly WatchedKind[] = [
  { kind: "GatewayClass", apiVersion: `${GATEWAY_API_GROUP}/v1`, plural: "gatewayclasses" },
  { kind: "Gateway", apiVersion: `${GATEWAY_API_GROUP}/v1`, plural: "gateways", isReported: true },
  {
    kind: "ListenerSet",
    apiVersion: `${GATEWAY_API_GROUP}/v1`,
    plural: "listenersets",
    isOptional: true,
    isReported: true,
  },
  { kind: "HTTPRoute", apiVersion: `${GATEWAY_API_GROUP}/v1`, plural: "httproutes", isReported: true },
  {
    kind: "GRPCRoute",
    apiVersion: `${GATEWAY_API_GROUP}/v1`,
    plural: "grpcroutes",
    isOptional: true,
    isReported: true,
  },
  {
    kind: "TLSRoute",
    apiVersion: `${GATEWAY_API_GROUP}/v1`,
    plural: "tlsroutes",
    isOptional: true,
    isReported: true,
  },
  {
    kind: "TCPRoute",
    apiVersion: `${GATEWAY_API_GROUP}/v1`,
    plural: "tcproutes",
    isOptional: true,
    isReported: true,
  },
  { kind: "ReferenceGrant", apiVersion: `${GATEWAY_API_GROUP}/v1beta1`, plural: "referencegrants", isOptional: true },
  { kind: "GatewayPolicy", apiVersion: `${POLICY_API_GROUP}/v1alpha1`, plural: "gatewaypolicies", isProtection: true },
  { kind: "Backend", apiVersion: `${POLICY_API_GROUP}/v1alpha1`, plural: "backends", isOptional: true },
  {
    kind: PARAMETERS_KIND,
    apiVersion: `${POLICY_API_GROUP}/v1alpha1`,
    plural: "gatewayparameters",
    isOptional: true,
  },
  {
    kind: "BackendTLSPolicy",
    apiVersion: `${GATEWAY_API_GROUP}/v1`,
    plural: "backendtlspolicies",
    isOptional: true,
    isProtection: true,
  },
  {
    kind: POOL_KIND,
    apiVersion: `${INFERENCE_GROUP}/v1`,
    plural: "inferencepools",
    isOptional: true,
    isReported: true,
  },
  { kind: "Pod", apiVersion: "v1", plural: "pods", used: readyPod, neededFor: POOL_KIND },
  { kind: "ConfigMap", apiVersion: "v1", plural: "configmaps", used: certificatesOf },
  { kind: "Namespace", apiVersion: "v1", plural: "namespaces" },
  { kind: "Service", apiVersion: "v1", plural: "services" },
  // No document refers to Helm releases, which can be large.
  { kind: "Secret", apiVersion: "v1", plural: "secrets", query: "fieldSelector=type%21%3Dhelm.sh%2Frelease.v1" },
  { kind: "EndpointSlice", apiVersion: "discovery.k8s.io/v1", plural: "endpointslices" },
];

export const DEPLOYMENTS: WatchedKind = {
  kind: "Deployment",
  apiVersion: "apps/v1",
  plural: "deployments",
  query: "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dgateway-controller",
};

export const AUTOSCALER_KIND = "HorizontalPodAutoscaler";

export const AUTOSCALERS: WatchedKind = {
  kind: AUTOSCALER_KIND,
  apiVersion: "autoscaling/v2",
  plural: "horizontalpodautoscalers",
  isOptional: true,
  query: DEPLOYMENTS.query as string,
  // Its status changes every few seconds, but only its existence matters.
  used: () => ({ data: {} }),
};

export function pathOfKind({ apiVersion, plural }: WatchedKind): string {
  return `/${apiVersion.includes("/") ? "apis" : "api"}/${apiVersion}/${plural}`;
}

export function pathOfObject(kind: WatchedKind, namespace: string, name: string, status?: "status"): string {
  const { apiVersion, plural } = kind;
  const group = `/${apiVersion.includes("/") ? "apis" : "api"}/${apiVersion}`;
  const within = namespace === "" ? "" : `/namespaces/${encodeURIComponent(namespace)}`;
  return `${group}${within}/${plural}/${encodeURIComponent(name)}${status === undefined ? "" : "/status"}`;
}

/** Adds the kind, which list items lack. Returns undefined if the object is not used. */
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

/** BackendTLSPolicy reads only the certificates of a ConfigMap. */
function certificatesOf({ data }: KubernetesObject): Readonly<Record<string, unknown>> | undefined {
  const text = fieldsOf(data)["ca.crt"];
  return typeof text === "string" ? { data: { "ca.crt": text } } : undefined;
}

/** Compares everything except the status and the resourceVersion. */
export function isSameButStatus(one: KubernetesObject, other: KubernetesObject): boolean {
  return withoutStatus(one) === withoutStatus(other);
}

function withoutStatus({ status: _, ...object }: KubernetesObject & { readonly status?: unknown }): string {
  return JSON.stringify({ ...object, metadata: { ...object.metadata, resourceVersion: undefined } });
}
