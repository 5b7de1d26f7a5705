/**
 * Calls in flight to one server, and the table that finds a call by the id it has on the connection (the wire id).
 * A call is pending from the moment it is accepted until its response, failure, or cancellation.
 */
import { type Call, type CallHandle, type Failure, serverFailure } from "../protocol/call.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";

/** Upper bound for one call, no matter how often the server reports progress. */
const MAX_CALL_MS = 3_600_000;

const INITIAL_TABLE_SIZE = 8;

/** The connection that a call belongs to. */
export interface CallOwner {
  cancel(pending: PendingCall, reason: string | undefined): void;
  /** Logs an exception thrown by a receiver of messages. */
  reportDefect(error: unknown): void;
}

export class PendingCall implements CallHandle {
  readonly call: Call;
  readonly startedMs: number;
  /** The gateway sent this request itself, for example during a handshake. Clients cannot cancel it. */
  readonly isInternal: boolean;
  readonly #owner: CallOwner;
  /** Time of the last sign of progress. */
  activityMs: number;
  /** 0 until the call is sent. */
  wireId = 0;
  /** The client's progress token, as JSON text. */
  progressToken: string | undefined = undefined;
  wasRepeated = false;
  isOver = false;

  constructor(call: Call, nowMs: number, owner: CallOwner, isInternal = false) {
    this.call = call;
    this.startedMs = nowMs;
    this.activityMs = nowMs;
    this.#owner = owner;
    this.isInternal = isInternal;
  }

  /** Subscriptions have no timeout, and messages without a call id never belong to one. */
  get isSubscription(): boolean {
    return this.call.request.method === "subscriptions/listen";
  }

  /** A server that waits for a response of the client (`hasOpenQuestions`) is exempt from the inactivity timeout. */
  isOverdue(nowMs: number, timeoutMs: number, hasOpenQuestions: boolean): boolean {
    if (this.isSubscription) return false;
    return (nowMs - this.activityMs > timeoutMs && !hasOpenQuestions) || nowMs - this.startedMs >= MAX_CALL_MS;
  }

  cancel(reason: string | undefined): void {
    if (!this.isOver) this.#owner.cancel(this, reason);
  }

  /**
   * Responses and failures are delivered from timers, process exits, and sockets that other calls share. An exception
   * on the way to one client is contained here, and that client gets a failure instead of waiting forever.
   */
  answer(message: ServerMessage): void {
    this.isOver = true;
    try {
      this.call.answered(message);
    } catch (error) {
      this.#owner.reportDefect(error);
      this.fail(serverFailure("the server's response could not be forwarded"));
    }
  }

  fail(failure: Failure): void {
    this.isOver = true;
    try {
      this.call.failed(failure);
    } catch (error) {
      this.#owner.reportDefect(error);
    }
  }
}

/**
 * Pending calls by wire id. Ids increase by one because some servers store them in 32 bits, and continue across
 * reconnects, so a late response of an old connection never matches a new call. An array that is reused causes less
 * garbage than a Map (see `base/linked-list.ts`).
 */
export class CallTable {
  /** The length is a power of two. A call is stored at the low bits of its id. */
  #slots: (PendingCall | undefined)[] = new Array(INITIAL_TABLE_SIZE).fill(undefined);
  #size = 0;
  #nextId = 1;

  get size(): number {
    return this.#size;
  }

  /** Assigns an unused id. Skips ids whose slot is still occupied by an older call. */
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
    this.#slots = new Array(INITIAL_TABLE_SIZE).fill(undefined);
    this.#size = 0;
    return all;
  }

  /** Ids that differ in their low bits still differ with one bit more, so no two calls collide. */
  #grow(): void {
    const all = this.all();
    this.#slots = new Array(this.#slots.length * 2).fill(undefined);
    for (const pending of all) this.#slots[pending.wireId & (this.#slots.length - 1)] = pending;
  }
}
