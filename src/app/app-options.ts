/**
 * Defines the options of `startApp` and the handle that it returns.
 */

import type { Clock } from "../base/clock.ts";
import type { HeapSize } from "../base/heap-pressure.ts";
import type { MemoryLimits } from "../base/memory-budget.ts";
import type { SourceList } from "../config/load/load.ts";
import type { Environment } from "../config/text/env.ts";
import type { Topology } from "../core/topology.ts";
import type { ClusterSource } from "../kubernetes/follow-controller.ts";
import type { ListenerLimits } from "../pipeline/listen/listener-env.ts";
import type { LogOutput } from "../record/log/log-output.ts";
import type { StartThread } from "./threads/load-for-threads.ts";
import type { HandedSocket } from "./upgrade/messages.ts";
import type { Predecessor } from "./upgrade/predecessor.ts";
import type { Successor, SuccessorEvents } from "./upgrade/successor.ts";
import type { UpgradeOutcome } from "./upgrade/upgrade.ts";

export interface AppOptions {
  /** Contains the paths of `-f`, or the text of a built-in configuration. */
  readonly sources: SourceList;
  readonly environment: Environment;
  readonly clock: Clock;
  readonly output: LogOutput;
  readonly color?: boolean;
  readonly version: string;
  readStdin(): string;
  /** If set, the gateway also serves the resources of this Kubernetes cluster. */
  readonly cluster?: ClusterSource;
  readonly defaultAdminAddr?: string;
  /** Set if this process replaces another one in an upgrade. */
  readonly predecessor?: Predecessor | undefined;
  /** Starts the new process of an upgrade. Without it, upgrades are rejected. */
  startSuccessor?(sockets: readonly HandedSocket[], events: SuccessorEvents): Successor;
  /** If undefined, one thread serves. */
  readonly startThread?: StartThread;
  random?(): number;
  /** The fields below are for tests. */
  readonly listenerLimits?: Partial<ListenerLimits>;
  heapSize?(): HeapSize;
  readonly memoryLimits?: Partial<MemoryLimits>;
}

export interface App {
  topology(): Topology;
  /** The keys are listener names. */
  ports(): ReadonlyMap<string, number>;
  readonly adminUrl: string | undefined;
  /** Starts the program from disk and hands over to it. If that fails, this process continues. */
  upgrade(): Promise<UpgradeOutcome>;
  /**
   * Stops accepting connections, drains requests until the drain timeout, and closes everything. A second call skips
   * the drain. `closesIdle` closes idle client connections immediately instead of keeping them for one more request.
   */
  stop(closesIdle?: boolean): Promise<void>;
  readonly stopped: Promise<void>;
  unexpected(error: unknown): void;
}
