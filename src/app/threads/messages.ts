/**
 * Messages between the main thread and worker threads. Workers receive all input from the main thread, so that all
 * serve the same configuration: its texts, the shared memory, and the ports.
 */
import type { MessagePort } from "node:worker_threads";
import type { RemoteRequest } from "../../admin/merge/remote-call.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";
import type { StoreRequest, StoreResponse } from "../../store/remote-store.ts";

/** The data that a worker thread starts with. */
export interface ThreadData {
  /** Counts from 1. A replacement has the number of the thread it replaces. */
  readonly thread: number;
  readonly threads: number;
  readonly environment: Environment;
  readonly color: boolean;
  readonly version: string;
  /** The value of `process.hrtime` at 0 of the main thread's monotonic clock. */
  readonly clockStartMs: number;
  /** The names of the configuration's sources. */
  readonly sources: readonly string[];
  /** Numbers finished requests across all threads. */
  readonly sequence: SharedArrayBuffer;
  readonly logFilter: string;
  /** The memory level of the main thread, which holds the store. */
  readonly mainHeapLevel: SharedArrayBuffer;
  /** The thread's child processes, which the main thread ends if it dies. */
  readonly children: SharedArrayBuffer;
}

/** The configuration for all threads. */
export interface Snapshot {
  readonly texts: readonly SourceText[];
  readonly memory: ReadonlyMap<string, SharedArrayBuffer>;
}

export type Order =
  /** Compiles a configuration next to the running one. */
  | { readonly kind: "prepare"; readonly snapshot: Snapshot }
  /** Serves the prepared configuration. `ports` has the ports of other threads, by listener. */
  | { readonly kind: "commit"; readonly ports: ReadonlyMap<string, number> }
  /** Discards the prepared configuration. */
  | { readonly kind: "discard" }
  /** Stops accepting connections and waits for requests. */
  | { readonly kind: "drain"; readonly drainMs: number }
  /** Shuts down, after all threads have drained. */
  | { readonly kind: "end" };

export type ToThread =
  | { readonly kind: "order"; readonly id: number; readonly order: Order }
  | { readonly kind: "admin"; readonly request: RemoteRequest; readonly port: MessagePort }
  /** The port to another thread; replaces an earlier one. */
  | { readonly kind: "peer"; readonly thread: number; readonly port: MessagePort }
  | { readonly kind: "store"; readonly answer: StoreResponse };

export interface Report {
  /** Why the order failed. */
  readonly problems?: readonly string[];
  readonly ports?: ReadonlyMap<string, number>;
}

export type FromThread =
  | { readonly kind: "report"; readonly id: number; readonly report: Report }
  | { readonly kind: "log"; readonly text: string }
  /** An in-memory store is in the main thread, so that all threads share it. */
  | { readonly kind: "store"; readonly question: StoreRequest }
  | { readonly kind: "admin"; readonly request: RemoteRequest; readonly port: MessagePort };
