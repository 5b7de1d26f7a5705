/**
 * What the old and the new process of an upgrade say to each other.
 */
import type { UsedBucket } from "../../core/policy.ts";
import type { StoreAnswer, StoreQuestion } from "../../store/remote-store.ts";
import type { Change } from "../../store/table.ts";

/** The variable that tells a new process which sockets it was handed; the value is `HandedSocket[]` as JSON. */
export const HANDED_SOCKETS = "GATEWAY_HANDED_SOCKETS";

export interface HandedSocket {
  readonly fd: number;
  /** Of a listener; or whom an address of the process is for. */
  readonly name: string;
  readonly kind: "listener" | "process";
  readonly port: number;
  readonly family: 4 | 6;
}

export type FromSuccessor =
  /** It is about to serve: what the local limits have counted. */
  | { readonly type: "buckets wanted" }
  /** It is about to open its store: the old one must let go of it. */
  | { readonly type: "store wanted" }
  /** It serves. */
  | { readonly type: "ready"; readonly version: string }
  | { readonly type: "failed"; readonly reason: string }
  | StoreAnswer;

export type FromPredecessor =
  /** `content`: of a store in memory. */
  | { readonly type: "store given"; readonly content?: readonly Change[] }
  /** Of one rule, by its name: at first all, later what was used since. */
  | { readonly type: "buckets used"; readonly name: string; readonly buckets: readonly UsedBucket[] }
  | { readonly type: "buckets given" }
  | StoreQuestion;
