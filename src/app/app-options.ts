/**
 * What the gateway is started with, and what whoever started it has in hand.
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
  /** Whether log levels are shown in colour. Default: not. */
  readonly color?: boolean;
  readonly version: string;
  readStdin(): string;
  /** A cluster whose documents are served besides. */
  readonly cluster?: ClusterSource;
  /** Where the admin interface binds when the configuration does not say. */
  readonly defaultAdminAddr?: string;
  /** The process that started this one to take its place. */
  readonly predecessor?: Predecessor | undefined;
  /** Starts the program again; absent where there is no program. */
  startSuccessor?(sockets: readonly HandedSocket[], events: SuccessorEvents): Successor;
  /** Starts a thread that serves; undefined where this form of the program has none. */
  readonly startThread?: StartThread;
  random?(): number;
  /** For tests, which can open neither 10,000 connections nor fill a heap. */
  readonly listenerLimits?: Partial<ListenerLimits>;
  heapSize?(): HeapSize;
  readonly memoryLimits?: Partial<MemoryLimits>;
}

export interface App {
  /** What serves now. */
  topology(): Topology;
  /** The port of each listener, by gateway name. */
  ports(): ReadonlyMap<string, number>;
  readonly adminUrl: string | undefined;
  /** Starts the program again as it is on disk now, hands over and drains; if that fails, goes on. */
  upgrade(): Promise<UpgradeOutcome>;
  /** Stops accepting, lets requests end up to the drain limit, closes everything. Called again: at once. */
  stop(): Promise<void>;
  /** Resolves when stopped, whoever asked for it. */
  readonly stopped: Promise<void>;
  /** An exception that only the process caught: counted and logged. */
  unexpected(error: unknown): void;
}
