/**
 * One Gateway of a cluster served by this process, without a controller: for development. The cluster is only read.
 */

import type { Clock } from "../base/clock.ts";
import type { Logger } from "../observe/log/logger.ts";
import type { ApiClient } from "./api-client.ts";
import { KINDS, openClusterCache } from "./cluster-cache.ts";
import { createView } from "./cluster-snapshots.ts";
import { debounce } from "./debounce.ts";
import { createSnapshotSource, type SnapshotSource } from "./follow-controller.ts";

const QUIET_MS = 50;
const LONGEST_MS = 500;

export interface WatchGatewayOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Logger;
  random(): number;
  /** `namespace/name`. */
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
  async function look(): Promise<void> {
    if (!cache.isSynced()) return;
    const snapshot = createView(cache.all(), clock.now()).snapshots.get(gateway);
    if (snapshot === undefined) {
      // What is served goes on: a Gateway that was deleted by mistake comes back.
      if (!isMissing) logger.warn("the Gateway is not there, or its class is not ours", { gateway });
      isMissing = true;
      return;
    }
    isMissing = false;
    source.take(snapshot);
    arrived();
  }
  const looks = debounce(clock, QUIET_MS, LONGEST_MS, look, (error) =>
    logger.error("the cluster could not be looked at", { reason: (error as Error).message }),
  );
  const cache = openClusterCache(KINDS, {
    client,
    clock,
    logger,
    random,
    changed: looks.soon,
    statusChanged: () => undefined,
  });
  return {
    source,
    first,
    stop() {
      looks.stop();
      cache.stop();
      client.close();
    },
  };
}
