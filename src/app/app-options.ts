/**
 * The options of `startApp`, and the handle it returns.
 */

import type { Clock } from "../base/clock.ts";
import type { HeapSize } from "../base/heap-pressure.ts";
import type { MemoryLimits } from "../base/memory-budget.ts";
import type { SourceList } from "../config/load/load.ts";
import type { Environment } from "../config/text/env.ts";
import type { Topology } from "../core/topology.ts";
import type { ClusterSource } from "../kubernetes/follow-controller.ts";
import type { LogOutput } from "../observe/log/log-output.ts";
import type { ListenerLimits } from "../pipeline/listen/listener-env.ts";
import type { StartThread } from "./threads/load-for-threads.ts";
import type { HandedSocket } from "./upgrade/messages.ts";
import type { Predecessor } from "./upgrade/predecessor.ts";
import type { Successor, SuccessorEvents } from "./upgrade/successor.ts";
import type { UpgradeOutcome } from "./upgrade/upgrade.ts";

export interface AppOptions {
  /** Paths of `-f`, or one built-in text. */
  readonly sources: SourceList;
  readonly environment: Environment;
  readonly clock: Clock;
  readonly output: LogOutput;
  /** Whether to color log levels. Default: false. */
  readonly color?: boolean;
  readonly version: string;
  readStdin(): string;
  /** A Kubernetes cluster whose documents are served in addition. */
  readonly cluster?: ClusterSource;
  /** The admin address if the configuration has none. */
  readonly defaultAdminAddr?: string;
  /** The process that this one replaces in an upgrade. */
  readonly predecessor?: Predecessor | undefined;
  /** Starts a new process for an upgrade; absent in tests. */
  startSuccessor?(sockets: readonly HandedSocket[], events: SuccessorEvents): Successor;
  /** Starts a worker thread; undefined in the single executable, which has none. */
  readonly startThread?: StartThread;
  random?(): number;
  /** For tests, which can neither open 10,000 connections nor fill a heap. */
  readonly listenerLimits?: Partial<ListenerLimits>;
  heapSize?(): HeapSize;
  readonly memoryLimits?: Partial<MemoryLimits>;
}

export interface App {
  /** The configuration in use. */
  topology(): Topology;
  /** The port of each listener, by gateway name. */
  ports(): ReadonlyMap<string, number>;
  readonly adminUrl: string | undefined;
  /** Starts the program from disk, hands over to it and drains. If that fails, this process continues. */
  upgrade(): Promise<UpgradeOutcome>;
  /**
   * Stops accepting connections, waits for requests up to the drain timeout, and closes everything. A second call does
   * not wait.
   */
  stop(): Promise<void>;
  /** Resolves when the shutdown is complete. */
  readonly stopped: Promise<void>;
  /** Counts and logs an uncaught exception. */
  unexpected(error: unknown): void;
}
