/**
 * Everything that is watched, in one place. Nobody looks before all kinds were listed once: half a cluster would look
 * like routes that were deleted.
 */
import type { KubernetesObject } from "../../config/cluster/kubernetes-object.ts";
import type { Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/process/clock.ts";
import type { ApiClient } from "../client/api-client.ts";
import { watchKind } from "./kind-watch.ts";
import type { WatchedKind } from "./kinds.ts";

export interface ClusterCache {
  isSynced(): boolean;
  /** Kinds that were not listed yet. */
  waitingFor(): string[];
  all(): KubernetesObject[];
  of(kind: string): KubernetesObject[];
  stop(): void;
}

export interface CacheParts {
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
