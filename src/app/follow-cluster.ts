/**
 * Reloads whenever the cluster has a new version of the documents, one at a time, and says what became of each.
 */
import type { ClusterSource } from "../kubernetes/follow-controller.ts";
import type { Loaded } from "./config-loader.ts";
import type { Reloads } from "./reload.ts";

export interface FollowedCluster {
  stop(): void;
}

export function followCluster(source: ClusterSource, reloads: Reloads, first: Loaded): FollowedCluster {
  let isStopped = false;
  let isRunning = false;
  /** The first configuration was loaded from the version that was current then. */
  let loaded = source.current()?.version;
  if (loaded !== undefined) source.applied(loaded, { isServed: true, problems: [], failures: first.failures ?? [] });

  async function run(): Promise<void> {
    if (isRunning) return;
    isRunning = true;
    try {
      while (!isStopped && source.current() !== undefined && source.current()?.version !== loaded) {
        const version = source.current()?.version as string;
        loaded = version;
        const problems = await reloads.reload();
        source.applied(version, {
          isServed: problems.length === 0,
          problems,
          failures: reloads.running().failures ?? [],
        });
      }
    } finally {
      isRunning = false;
    }
  }

  source.onChange(() => void run());
  void run();
  return {
    stop() {
      isStopped = true;
    },
  };
}
