/**
 * A call on its way to a server, from the moment it is accepted to its answer, failure or cancellation.
 */
import type { Call, Failure, Running } from "./call.ts";

export class PendingCall implements Running {
  readonly call: Call;
  readonly startedMs: number;
  readonly #cancel: (pending: PendingCall, reason: string | undefined) => void;
  activityMs: number;
  /** 0 until it is sent. */
  wireId = 0;
  /** The client's own, as text. */
  progressToken: string | undefined = undefined;
  wasRepeated = false;
  isOver = false;

  constructor(call: Call, nowMs: number, cancel: (pending: PendingCall, reason: string | undefined) => void) {
    this.call = call;
    this.startedMs = nowMs;
    this.activityMs = nowMs;
    this.#cancel = cancel;
  }

  /** A subscription lasts: it has no time limit, and nothing that a server says besides can belong to it. */
  get isSubscription(): boolean {
    return this.call.request.method === "subscriptions/listen";
  }

  cancel(reason: string | undefined): void {
    if (!this.isOver) this.#cancel(this, reason);
  }

  fail(failure: Failure): void {
    this.isOver = true;
    this.call.failed(failure);
  }
}
