/**
 * The contract of an open stream that sends periodic keep-alive messages.
 */
import type { Linked } from "../../base/linked-list.ts";

export interface Heartbeat extends Linked<Heartbeat> {
  beat(nowMs: number): void;
  /** Ends a stream that would otherwise stay open during shutdown. */
  drain?(): void;
}
