/**
 * The memory of one rule's buckets when several threads use them: everything lies in one SharedArrayBuffer, keys as their
 * UTF-16 text in a hash table, and one lock guards all of it. Who holds the lock does a few hundred nanoseconds of work and
 * never waits for anything. A thread that dies may hold it: the main thread then puts the lists in order and opens it.
 */
import { randomFillSync } from "node:crypto";
import { MAX_KEY_LENGTH } from "../../cel/limit-key.ts";
import type { BucketKeys } from "./bucket-keys.ts";
import { keyHash } from "./key-hash.ts";
import { NO_SLOT } from "./slot-lists.ts";

/** 8 bytes each: hand, slots in use, refusals. */
const STATE_NUMBERS = 3;
/** 4 bytes each: the lock and the two numbers of the hash, and one for alignment. */
const CONTROL_NUMBERS = 4;
const UNLOCKED = 0;
/** Far longer than anybody holds it; then its holder was preempted or died, and the processor is better left to others. */
const SPINS_BEFORE_NAP = 2_000;
const NAP_MS = 1;

export interface ListMemory {
  readonly next: Int32Array;
  readonly previous: Int32Array;
}

export class SharedBuckets implements BucketKeys {
  readonly slots: number;
  readonly state: Float64Array;
  readonly remaining: Float64Array;
  readonly windowStartMs: Float64Array;
  readonly generation: Uint32Array;
  readonly byUse: ListMemory;
  readonly byWindowEnd: ListMemory;
  readonly isNew: boolean;
  readonly #thread: number;
  readonly #control: Int32Array;
  readonly #heads: Int32Array;
  readonly #chain: Int32Array;
  readonly #hashes: Uint32Array;
  readonly #lengths: Uint8Array;
  readonly #texts: Uint16Array;
  readonly #mask: number;

  constructor(buffer: SharedArrayBuffer, isNew: boolean, slots: number, lists: [number, number], thread: number) {
    this.isNew = isNew;
    this.slots = slots;
    this.#thread = thread;
    let at = 0;
    const take = <Numbers>(
      kind: (new (buffer: SharedArrayBuffer, from: number, length: number) => Numbers) & { BYTES_PER_ELEMENT: number },
      length: number,
    ): Numbers => {
      const from = at;
      at += length * kind.BYTES_PER_ELEMENT;
      return new kind(buffer, from, length);
    };
    // From wide to narrow, so that each is aligned.
    this.state = take(Float64Array, STATE_NUMBERS);
    this.remaining = take(Float64Array, slots);
    this.windowStartMs = take(Float64Array, slots);
    this.#control = take(Int32Array, CONTROL_NUMBERS);
    this.generation = take(Uint32Array, slots);
    this.byUse = { next: take(Int32Array, lists[0] + slots), previous: take(Int32Array, lists[0] + slots) };
    this.byWindowEnd = { next: take(Int32Array, lists[1] + slots), previous: take(Int32Array, lists[1] + slots) };
    const heads = headsFor(slots);
    this.#heads = take(Int32Array, heads);
    this.#chain = take(Int32Array, slots);
    this.#hashes = take(Uint32Array, slots);
    this.#texts = take(Uint16Array, slots * MAX_KEY_LENGTH);
    this.#lengths = take(Uint8Array, slots);
    this.#mask = heads - 1;
    if (isNew) this.#control.set(randomFillSync(new Int32Array(2)), 1);
  }

  static bytes(slots: number, lists: [number, number]): number {
    const perSlot = 8 + 8 + 4 + 4 * 4 + 4 + 4 + MAX_KEY_LENGTH * 2 + 1;
    return STATE_NUMBERS * 8 + CONTROL_NUMBERS * 4 + 8 * (lists[0] + lists[1]) + 4 * headsFor(slots) + slots * perSlot;
  }

  lock(): void {
    const control = this.#control;
    for (let spins = 0; ; spins++) {
      const holder = Atomics.compareExchange(control, 0, UNLOCKED, this.#thread);
      if (holder === UNLOCKED) return;
      if (spins >= SPINS_BEFORE_NAP) Atomics.wait(control, 0, holder, NAP_MS);
    }
  }

  unlock(): void {
    Atomics.store(this.#control, 0, UNLOCKED);
  }

  isLockedBy(thread: number): boolean {
    return Atomics.load(this.#control, 0) === thread;
  }

  slotOf(key: string): number {
    const hash = this.#hash(key);
    let slot = this.#heads[hash & this.#mask] as number;
    // The shared slot, 0, has no key: it ends a chain.
    while (slot !== 0) {
      if (this.#hashes[slot] === hash && this.#holds(slot, key)) return slot;
      slot = this.#chain[slot] as number;
    }
    return NO_SLOT;
  }

  keyAt(slot: number): string | undefined {
    if (slot === 0) return undefined;
    const from = slot * MAX_KEY_LENGTH;
    return String.fromCharCode(...this.#texts.subarray(from, from + (this.#lengths[slot] as number)));
  }

  set(slot: number, key: string): void {
    const from = slot * MAX_KEY_LENGTH;
    for (let i = 0; i < key.length; i++) this.#texts[from + i] = key.charCodeAt(i);
    this.#lengths[slot] = key.length;
    const hash = this.#hash(key);
    this.#hashes[slot] = hash;
    this.#link(slot);
  }

  remove(slot: number): void {
    const head = (this.#hashes[slot] as number) & this.#mask;
    let before = this.#heads[head] as number;
    if (before === slot) {
      this.#heads[head] = this.#chain[slot] as number;
      return;
    }
    while (before !== 0) {
      const next = this.#chain[before] as number;
      if (next === slot) {
        this.#chain[before] = this.#chain[slot] as number;
        return;
      }
      before = next;
    }
  }

  /** Whoever held the lock may have left half a change: the table is made again from the texts. */
  rebuild(used: number): void {
    this.#heads.fill(0);
    for (let slot = 1; slot < used; slot++) {
      this.#hashes[slot] = this.#hash(this.keyAt(slot) as string);
      this.#link(slot);
    }
  }

  #link(slot: number): void {
    const head = (this.#hashes[slot] as number) & this.#mask;
    this.#chain[slot] = this.#heads[head] as number;
    this.#heads[head] = slot;
  }

  #hash(key: string): number {
    return keyHash(key, this.#control[1] as number, this.#control[2] as number);
  }

  #holds(slot: number, key: string): boolean {
    if (this.#lengths[slot] !== key.length) return false;
    const from = slot * MAX_KEY_LENGTH;
    for (let i = 0; i < key.length; i++) if (this.#texts[from + i] !== key.charCodeAt(i)) return false;
    return true;
  }
}

/** A power of two, about twice as many as keys: chains stay short. */
function headsFor(slots: number): number {
  return 2 ** Math.ceil(Math.log2(2 * slots));
}
