/**
 * A call on its way to a server, from the moment it is accepted to its answer, failure or cancellation.
 */
import { type Call, type CallHandle, type Failure, serverFailure } from "../protocol/call.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";

/** However often a server reports progress, one call does not run longer. */
const MAX_CALL_MS = 3_600_000;

export interface PendingCallEnv {
  cancelled(pending: PendingCall, reason: string | undefined): void;
  /** A fault of ours: the answer could not be handed on. */
  broke(error: unknown): void;
}

export class PendingCall implements CallHandle {
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

const FIRST_SIZE = 8;

export class CallTable {
  /** As long as a power of two; a call is at the lower bits of its id. */
  #slots: (PendingCall | undefined)[] = new Array(FIRST_SIZE).fill(undefined);
  #size = 0;
  #nextId = 1;

  get size(): number {
    return this.#size;
  }

  /** Gives it an id that no call of this connection or an earlier one had. */
  add(pending: PendingCall): number {
    if (this.#size * 2 >= this.#slots.length) this.#grow();
    const mask = this.#slots.length - 1;
    while (this.#slots[this.#nextId & mask] !== undefined) this.#nextId += 1;
    const wireId = this.#nextId++;
    this.#slots[wireId & mask] = pending;
    this.#size += 1;
    pending.wireId = wireId;
    return wireId;
  }

  get(wireId: number): PendingCall | undefined {
    const pending = this.#slots[wireId & (this.#slots.length - 1)];
    return pending?.wireId === wireId ? pending : undefined;
  }

  take(wireId: number): PendingCall | undefined {
    const pending = this.get(wireId);
    if (pending === undefined) return undefined;
    this.#slots[wireId & (this.#slots.length - 1)] = undefined;
    this.#size -= 1;
    return pending;
  }

  /** Oldest first. */
  all(): PendingCall[] {
    const all = this.#slots.filter((pending) => pending !== undefined);
    return all.sort((a, b) => a.wireId - b.wireId);
  }

  takeAll(): PendingCall[] {
    const all = this.all();
    this.#slots = new Array(FIRST_SIZE).fill(undefined);
    this.#size = 0;
    return all;
  }

  /** Ids that differ in their lower bits also differ in one bit more. */
  #grow(): void {
    const all = this.all();
    this.#slots = new Array(this.#slots.length * 2).fill(undefined);
    for (const pending of all) this.#slots[pending.wireId & (this.#slots.length - 1)] = pending;
  }
}
