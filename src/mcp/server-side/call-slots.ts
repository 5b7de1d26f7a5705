/**
 * The calls in flight by their wire ids: a table that is used again and again. Ids rise by one, as servers expect
 * (some keep them in 32 bits); an id whose place is still taken by an old call is left out. (See
 * `base/linked-list.ts` for why it is no Map.)
 */
import type { PendingCall } from "./pending-call.ts";

const FIRST_SIZE = 8;

export class CallSlots {
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
