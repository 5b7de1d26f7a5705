/**
 * Defines the messages between the old and the new process of an upgrade.
 */
import type { UsedBucket } from "../../core/policy.ts";
import type { BusMessage } from "../../store/process-bus.ts";
import type { StoreRequest, StoreResponse } from "../../store/remote-store.ts";
import type { Change } from "../../store/store.ts";

/** This environment variable contains a `HandedSocket[]` as JSON. */
export const HANDED_SOCKETS = "GATEWAY_HANDED_SOCKETS";

export interface HandedSocket {
  readonly fd: number;
  /** Names the listener, or the audience of an admin address. */
  readonly name: string;
  readonly kind: "listener" | "process";
  readonly port: number;
  readonly family: 4 | 6;
  /** The worker thread that used the socket, from 1. Older versions do not set it. */
  readonly thread?: number;
  /** The number of threads of the process, which can have fewer sockets while a thread starts or is replaced. */
  readonly threads?: number;
}

export type FromSuccessor =
  /** Requests the counts of local rate limits before the new process serves. */
  | { readonly type: "buckets wanted" }
  /** Requests that the old process releases its store. */
  | { readonly type: "store wanted" }
  /** Announces that operations on the store are run from now on. */
  | { readonly type: "store served" }
  | { readonly type: "ready"; readonly version: string }
  /** The store is closed, and every operation that ran was answered. `content` is set if it was in memory. */
  | { readonly type: "failed"; readonly reason: string; readonly content?: readonly Change[] }
  | StoreResponse
  | BusMessage;

export type FromPredecessor =
  /** `content` is set for an in-memory store. */
  | { readonly type: "store given"; readonly content?: readonly Change[] }
  /** Contains the buckets of one rule: in the first message all of them, later those used since the last message. */
  | { readonly type: "buckets used"; readonly name: string; readonly buckets: readonly UsedBucket[] }
  | { readonly type: "buckets given" }
  /** Announces that the old process accepts `BusMessage`. */
  | { readonly type: "bus open" }
  | StoreRequest
  | BusMessage;
