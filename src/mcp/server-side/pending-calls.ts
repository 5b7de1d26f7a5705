/**
 * Tracks the calls in flight to one server by their wire id, which is the id that the gateway assigns on the
 * connection.
 */
import type { Sent, WireTap } from "../../core/wire.ts";
import { HeaderList } from "../../http/headers.ts";
import { type Call, type CallHandle, type Failure, serverFailure } from "../protocol/call.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { Channel } from "../transports/transport.ts";

/** A message over a pipe has no status. The trace requires one. */
const PIPE_STATUS = 200;

/** Limits one call even if the server keeps reporting progress. */
const MAX_CALL_MS = 3_600_000;

const INITIAL_TABLE_SIZE = 8;

export interface CallOwner {
  cancel(pending: PendingCall, reason: string | undefined): void;
  reportDefect(error: unknown): void;
}

export class PendingCall implements CallHandle {
  readonly call: Call;
  readonly startedMs: number;
  /** Marks requests that the gateway makes for itself, for example during a handshake. */
  readonly isInternal: boolean;
  readonly #owner: CallOwner;
  activityMs: number;
  /** The id is 0 while the call is not sent. */
  wireId = 0;
  /** The client's token as JSON. */
  progressToken: string | undefined = undefined;
  wasRepeated = false;
  isOver = false;
  #isTimed = false;
  #reported: ResultTap | undefined = undefined;

  constructor(call: Call, nowMs: number, owner: CallOwner, isInternal = false) {
    this.call = call;
    this.startedMs = nowMs;
    this.activityMs = nowMs;
    this.#owner = owner;
    this.isInternal = isInternal;
  }

  get isSubscription(): boolean {
    return this.call.request.method === "subscriptions/listen";
  }

  /** The inactivity timeout does not apply while the server waits for the client (`hasOpenQuestions`). */
  isOverdue(nowMs: number, timeoutMs: number, hasOpenQuestions: boolean): boolean {
    if (this.isSubscription) return false;
    return (nowMs - this.activityMs > timeoutMs && !hasOpenQuestions) || nowMs - this.startedMs >= MAX_CALL_MS;
  }

  /** Starts the time of the server. Returns the tap for the message, or undefined if the call is not traced. */
  sentOver(channel: Pick<Channel, "address" | "isPipe">): WireTap | undefined {
    this.#settle();
    const { wire } = this.call;
    // The result of a subscription is the start of its stream.
    if (wire === undefined || this.isSubscription) return wire?.isWatched === true ? wire : undefined;
    this.#isTimed = true;
    wire.requestSent();
    if (wire.isWatched) this.#reported = new ResultTap(wire, channel);
    return this.#reported;
  }

  cancel(reason: string | undefined, failure?: Failure): void {
    if (this.isOver) return;
    this.#owner.cancel(this, reason);
    this.#settle(failure);
  }

  /** Catches exceptions, because responses are delivered from callbacks that other calls share. */
  answer(message: ServerMessage): void {
    this.isOver = true;
    this.#settle("answered");
    try {
      this.call.answered(message);
    } catch (error) {
      this.#owner.reportDefect(error);
      this.fail(serverFailure("the server's response could not be forwarded"));
    }
  }

  fail(failure: Failure): void {
    this.isOver = true;
    this.#settle(failure);
    try {
      this.call.failed(failure);
    } catch (error) {
      this.#owner.reportDefect(error);
    }
  }

  #settle(outcome?: "answered" | Failure): void {
    if (!this.#isTimed) return;
    this.#isTimed = false;
    this.call.wire?.resultReceived();
    this.#reported?.settle(outcome);
    this.#reported = undefined;
  }
}

/**
 * Delays the report of an HTTP response head until the result of the call, because servers may send the head of an
 * event stream at once. Reports the result of a call over a pipe, which has no head.
 */
class ResultTap implements WireTap {
  readonly #wire: WireTap;
  readonly #pipe: string | undefined;
  #head: readonly [status: number, headers: HeaderList, target: string | undefined] | undefined = undefined;
  #isSettled = false;

  constructor(wire: WireTap, { address, isPipe }: Pick<Channel, "address" | "isPipe">) {
    this.#wire = wire;
    this.#pipe = isPipe === true ? address : undefined;
  }

  get isWatched(): boolean {
    return this.#wire.isWatched;
  }

  requestSent(): void {
    this.#wire.requestSent();
  }

  resultReceived(): void {
    this.#wire.resultReceived();
  }

  attempt(target: string, sent?: Sent): void {
    this.#flush();
    this.#wire.attempt(target, sent);
  }

  received(status: number, headers: HeaderList, target?: string): void {
    this.#flush();
    if (this.#isSettled) this.#wire.received(status, headers, target);
    else this.#head = [status, headers, target];
  }

  missed(reason: string, target: string): void {
    this.#wire.missed(reason, target);
  }

  settle(outcome: "answered" | Failure | undefined): void {
    this.#isSettled = true;
    this.#flush();
    if (this.#pipe === undefined || outcome === undefined) return;
    if (outcome === "answered") this.#wire.received(PIPE_STATUS, new HeaderList(), this.#pipe);
    else this.#wire.missed(outcome.message, this.#pipe);
  }

  #flush(): void {
    if (this.#head !== undefined) this.#wire.received(...this.#head);
    this.#head = undefined;
  }
}

/**
 * Finds pending calls by wire id. Ids increase across reconnects, so that a late response does not match a new call.
 */
export class CallTable {
  /** The length is a power of two, and the low bits of the id are the index of the call. */
  #slots: (PendingCall | undefined)[] = new Array(INITIAL_TABLE_SIZE).fill(undefined);
  #size = 0;
  #subscriptions = 0;
  #nextId = 1;

  get size(): number {
    return this.#size;
  }

  get subscriptions(): number {
    return this.#subscriptions;
  }

  /** Assigns an unused id and skips ids whose slot is still occupied by an older call. */
  add(pending: PendingCall): number {
    if (this.#size * 2 >= this.#slots.length) this.#grow();
    const mask = this.#slots.length - 1;
    while (this.#slots[this.#nextId & mask] !== undefined) this.#nextId += 1;
    const wireId = this.#nextId++;
    this.#slots[wireId & mask] = pending;
    this.#size += 1;
    if (pending.isSubscription) this.#subscriptions += 1;
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
    if (pending.isSubscription) this.#subscriptions -= 1;
    return pending;
  }

  /** Returns the call that was sent last. Subscriptions do not count. */
  newest(): PendingCall | undefined {
    let newest: PendingCall | undefined;
    for (const pending of this.#slots)
      if (pending !== undefined && !pending.isSubscription && pending.wireId > (newest?.wireId ?? 0)) newest = pending;
    return newest;
  }

  noteActivity(nowMs: number): void {
    for (const pending of this.#slots) if (pending !== undefined) pending.activityMs = nowMs;
  }

  /** Returns the calls in the order of their ids. */
  all(): PendingCall[] {
    const all = this.#slots.filter((pending) => pending !== undefined);
    return all.sort((a, b) => a.wireId - b.wireId);
  }

  takeAll(): PendingCall[] {
    const all = this.all();
    this.#slots = new Array(INITIAL_TABLE_SIZE).fill(undefined);
    this.#size = 0;
    this.#subscriptions = 0;
    return all;
  }

  /** Ids that differ in their low bits also differ with one more bit, so no two calls collide. */
  #grow(): void {
    const all = this.all();
    this.#slots = new Array(this.#slots.length * 2).fill(undefined);
    for (const pending of all) this.#slots[pending.wireId & (this.#slots.length - 1)] = pending;
  }
}
