/**
 * What the main thread and the threads that serve say to each other. Everything that a thread needs to serve comes from
 * the main thread, so that all serve the same: the texts of the configuration, the memory that they share, the ports.
 */
import type { MessagePort } from "node:worker_threads";
import type { RemoteRequest } from "../../admin/merge/remote-call.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";
import type { StoreAnswer, StoreQuestion } from "../../store/remote-store.ts";

/** What a thread is started with. */
export interface ThreadData {
  /** From 1. A thread that replaces another has its number. */
  readonly thread: number;
  readonly threads: number;
  readonly environment: Environment;
  readonly color: boolean;
  readonly version: string;
  /** What `process.hrtime` said when the main thread's monotonic clock stood at 0. */
  readonly clockStartMs: number;
  /** The names of the configuration's sources. */
  readonly sources: readonly string[];
  /** Counts requests that ended, over all threads. */
  readonly sequence: SharedArrayBuffer;
  readonly logFilter: string;
  /** How short memory is in the main thread, which has the store. */
  readonly mainHeapLevel: SharedArrayBuffer;
  /** Its child processes, for whoever must end them if it dies. */
  readonly children: SharedArrayBuffer;
}

/** A configuration as all threads get it. */
export interface Snapshot {
  readonly texts: readonly SourceText[];
  readonly memory: ReadonlyMap<string, SharedArrayBuffer>;
}

export type Order =
  /** Compile this one, beside the one that serves. */
  | { readonly kind: "prepare"; readonly snapshot: Snapshot }
  /** Serve what was prepared. `ports`: what other threads listen on, by listener. */
  | { readonly kind: "commit"; readonly ports: ReadonlyMap<string, number> }
  /** Forget what was prepared. */
  | { readonly kind: "discard" }
  /** Take no new connections, and let requests end. */
  | { readonly kind: "drain"; readonly drainMs: number }
  /** All threads have drained. */
  | { readonly kind: "end" };

export type ToThread =
  | { readonly kind: "order"; readonly id: number; readonly order: Order }
  | { readonly kind: "admin"; readonly request: RemoteRequest; readonly port: MessagePort }
  /** Requests from and to another thread pass over this port; it replaces an earlier one of the same thread. */
  | { readonly kind: "peer"; readonly thread: number; readonly port: MessagePort }
  | { readonly kind: "store"; readonly answer: StoreAnswer };

export interface Report {
  /** Why the order was not carried out. */
  readonly problems?: readonly string[];
  readonly ports?: ReadonlyMap<string, number>;
}

export type FromThread =
  | { readonly kind: "report"; readonly id: number; readonly report: Report }
  | { readonly kind: "log"; readonly text: string }
  /** A store in memory is that of the main thread, so that all threads have the same. */
  | { readonly kind: "store"; readonly question: StoreQuestion }
  | { readonly kind: "admin"; readonly request: RemoteRequest; readonly port: MessagePort };
