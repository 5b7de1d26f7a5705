/**
 * Defines the messages between the main thread and worker threads.
 */
import type { MessagePort } from "node:worker_threads";
import type { RemoteRequest } from "../../admin/merge/remote-call.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";
import type { RowBatch } from "../../record/history/row-batch.ts";
import type { MetricFamily } from "../../record/log/metrics.ts";
import type { BusMessage } from "../../store/process-bus.ts";
import type { StoreRequest, StoreResponse } from "../../store/remote-store.ts";
import type { HandedSocket } from "../upgrade/messages.ts";

export interface ThreadData {
  /** Starts at 1. A replacement thread gets the number of the thread that it replaces. */
  readonly thread: number;
  readonly threads: number;
  readonly environment: Environment;
  readonly color: boolean;
  readonly version: string;
  /** At this `process.hrtime`, in milliseconds, the main thread's monotonic clock was 0. */
  readonly clockStartMs: number;
  readonly sources: readonly string[];
  /** All threads share this counter of finished requests. */
  readonly sequence: SharedArrayBuffer;
  readonly logFilter: string;
  /** The main thread holds the store, so workers check its heap level. */
  readonly mainHeapLevel: SharedArrayBuffer;
  /** Lists the thread's child processes, which the main thread kills if the thread dies. */
  readonly children: SharedArrayBuffer;
  /** Counts while the thread's event loop runs. */
  readonly heartbeat: SharedArrayBuffer;
  /** Identifies the process in exported data. */
  readonly instanceId: string;
  /** Contains 1 while the main thread cannot write the audit file. Undefined without an audit file. */
  readonly auditFailing: SharedArrayBuffer | undefined;
  /** Contains 1 while another process uses the main thread's store, during an upgrade. */
  readonly storeShared: SharedArrayBuffer;
  /** Sockets of the previous process. A replacement thread has none. */
  readonly sockets: readonly HandedSocket[];
}

export interface Snapshot {
  readonly texts: readonly SourceText[];
  readonly memory: ReadonlyMap<string, SharedArrayBuffer>;
}

export type Order =
  | { readonly kind: "prepare"; readonly snapshot: Snapshot }
  /** Serves the prepared configuration. `ports` contains the listener ports that other threads use. */
  | { readonly kind: "commit"; readonly ports: ReadonlyMap<string, number> }
  | { readonly kind: "discard" }
  /** After an upgrade, calls that wait for their client count as requests in flight. */
  | { readonly kind: "drain"; readonly drainMs: number; readonly lingerMs: number; readonly isUpgraded: boolean }
  /** Requests the thread's metrics. */
  | { readonly kind: "metrics" }
  /** Shuts the thread down after all threads have drained. */
  | { readonly kind: "end" };

export type ToThread =
  | { readonly kind: "order"; readonly id: number; readonly order: Order }
  | { readonly kind: "admin"; readonly request: RemoteRequest; readonly port: MessagePort }
  /** Replaces an earlier port to the same thread. */
  | { readonly kind: "peer"; readonly thread: number; readonly port: MessagePort }
  | { readonly kind: "store"; readonly answer: StoreResponse }
  | { readonly kind: "bus"; readonly message: BusMessage };

export interface Report {
  readonly problems?: readonly string[];
  readonly ports?: ReadonlyMap<string, number>;
  /** Set in reports of `metrics` and `end`. */
  readonly metrics?: readonly MetricFamily[];
}

export type FromThread =
  | { readonly kind: "report"; readonly id: number; readonly report: Report }
  | { readonly kind: "log"; readonly text: string }
  /** The main thread owns the audit file and appends this line. */
  | { readonly kind: "audit"; readonly line: string }
  /** The main thread owns the history database and writes these rows. */
  | { readonly kind: "history"; readonly batch: RowBatch }
  /** The main thread holds the store unless it is Redis, so that all threads share it. */
  | { readonly kind: "store"; readonly question: StoreRequest }
  /** The main thread relays messages to the other process of an upgrade. */
  | { readonly kind: "bus"; readonly message: BusMessage }
  | { readonly kind: "admin"; readonly request: RemoteRequest; readonly port: MessagePort };
