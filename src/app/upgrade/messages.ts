/**
 * What the old and the new process of an upgrade say to each other.
 */
import type { StoreAnswer, StoreQuestion } from "../../lib/store/remote-store.ts";
import type { Change } from "../../lib/store/table.ts";

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
  /** It is about to open its store: the old one must let go of it. */
  | { readonly type: "store wanted" }
  /** It serves. */
  | { readonly type: "ready"; readonly version: string }
  | { readonly type: "failed"; readonly reason: string }
  | StoreAnswer;

export type FromPredecessor =
  /** `content`: of a store in memory. */
  { readonly type: "store given"; readonly content?: readonly Change[] } | StoreQuestion;
