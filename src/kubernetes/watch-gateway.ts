/**
 * Serves one Gateway of a cluster without a controller, for development. It never writes to the cluster.
 */

import type { Clock } from "../base/clock.ts";
import type { Logger } from "../record/log/logger.ts";
import type { ApiClient } from "./api-client.ts";
import { KINDS, openClusterCache } from "./cluster-cache.ts";
import { createClusterView } from "./cluster-snapshots.ts";
import { debounce } from "./debounce.ts";
import { createSnapshotSource, type SnapshotSource } from "./follow-controller.ts";

const QUIET_MS = 50;
const LONGEST_MS = 500;

export interface WatchGatewayOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
  /** The format is `namespace/name`. */
  readonly gateway: string;
}

export interface WatchedGateway {
  readonly source: SnapshotSource;
  readonly first: Promise<void>;
  stop(): void;
}

export function watchGateway({ client, clock, logger, random, gateway }: WatchGatewayOptions): WatchedGateway {
  let arrived = (): void => undefined;
  let isMissing = false;
  const first = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  const source = createSnapshotSource(() => undefined);
  async function reconcile(): Promise<void> {
    if (!cache.isSynced()) return;
    const snapshot = createClusterView(cache.all(), clock.now()).snapshots.get(gateway);
    if (snapshot === undefined) {
      // Keeps serving the last snapshot, because the Gateway may have been deleted by mistake.
      if (!isMissing) logger.warn("Gateway not found, or its class belongs to another controller", { gateway });
      isMissing = true;
      return;
    }
    isMissing = false;
    source.take(snapshot);
    arrived();
  }
  const reconciles = debounce(clock, QUIET_MS, LONGEST_MS, reconcile, (error) =>
    logger.error("reconcile failed", { reason: (error as Error).message }),
  );
  const cache = openClusterCache(KINDS, {
    client,
    clock,
    logger,
    random,
    changed: reconciles.soon,
    statusChanged: () => undefined,
  });
  return {
    source,
    first,
    stop() {
      reconciles.stop();
      cache.stop();
      client.close();
    },
  };
}
