/**
 * A call on its way to a server, from the moment it is accepted to its answer, failure or cancellation.
 */
import { type Call, type Failure, type Running, serverFailure } from "../protocol/call.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";

/** However often a server reports progress, one call does not run longer. */
const MAX_CALL_MS = 3_600_000;

export interface PendingCallEnv {
  cancelled(pending: PendingCall, reason: string | undefined): void;
  /** A fault of ours: the answer could not be handed on. */
  broke(error: unknown): void;
}

export class PendingCall implements Running {
  readonly call: Call;
  readonly startedMs: number;
  readonly #env: PendingCallEnv;
  activityMs: number;
  /** 0 until it is sent. */
  wireId = 0;
  /** The client's own, as text. */
  progressToken: string | undefined = undefined;
  wasRepeated = false;
  isOver = false;

  constructor(call: Call, nowMs: number, env: PendingCallEnv) {
    this.call = call;
    this.startedMs = nowMs;
    this.activityMs = nowMs;
    this.#env = env;
  }

  /** A subscription lasts: it has no time limit, and nothing that a server says besides can belong to it. */
  get isSubscription(): boolean {
    return this.call.request.method === "subscriptions/listen";
  }

  /** The server is silent about it for too long, or it runs for too long in all. */
  isOverdue(nowMs: number, timeoutMs: number, isAsking: boolean): boolean {
    if (this.isSubscription) return false;
    return (nowMs - this.activityMs > timeoutMs && !isAsking) || nowMs - this.startedMs >= MAX_CALL_MS;
  }

  cancel(reason: string | undefined): void {
    if (!this.isOver) this.#env.cancelled(this, reason);
  }

  /**
   * Answers and failures come from timers, exits and sockets that serve other calls too: a fault of ours on the way
   * to one client must not reach them, and the client must not wait for ever.
   */
  answer(message: ServerMessage): void {
    this.isOver = true;
    try {
      this.call.answered(message);
    } catch (error) {
      this.#env.broke(error);
      this.fail(serverFailure("the server's response could not be forwarded"));
    }
  }

  fail(failure: Failure): void {
    this.isOver = true;
    try {
      this.call.failed(failure);
    } catch (error) {
      this.#env.broke(error);
    }
  }
}
