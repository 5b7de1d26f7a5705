/**
 * Counts what clients do per minute, for example wrong passwords. Counters are slots of a fixed table, found by keyed
 * hashes, so that memory is bounded, nothing is evicted that an attacker could evict, and threads can share the table
 * without locks. A collision can only make a count too high.
 */
import { createHmac, randomBytes } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import type { OwnedKey } from "../../base/owner.ts";
import type { CompileEnv } from "../../core/policy.ts";

const WINDOW_SECONDS = 60;
/** Two rows, so that a count is too high only if both of its slots are shared with others. */
const ROWS = 2;
const ROW_SLOTS = 1 << 17;
const SEED_BYTES = 16;
/** A slot has the second in which its window started, and a count. */
const COUNT_BITS = 12;
const COUNT_MASK = (1 << COUNT_BITS) - 1;
const SECONDS_MASK = 2 ** (32 - COUNT_BITS) - 1;

export const MINUTE_COUNTS_BYTES = SEED_BYTES + ROWS * ROW_SLOTS * 4;

export interface MinuteCount {
  readonly count: number;
  readonly resetSeconds: number;
}

export class MinuteCounts {
  readonly #seed: Uint8Array;
  readonly #slots: Uint32Array;
  readonly #clock: Clock;

  constructor(clock: Clock, memory: { readonly buffer: SharedArrayBuffer; readonly isNew: boolean }) {
    this.#clock = clock;
    this.#seed = new Uint8Array(memory.buffer, 0, SEED_BYTES);
    this.#slots = new Uint32Array(memory.buffer, SEED_BYTES);
    if (memory.isNew) this.#seed.set(randomBytes(SEED_BYTES));
  }

  count(key: OwnedKey): MinuteCount {
    const now = this.#second();
    let found: MinuteCount = { count: Number.POSITIVE_INFINITY, resetSeconds: 0 };
    for (const slot of this.#slotsOf(key)) {
      const current = unpack(Atomics.load(this.#slots, slot), now);
      if (current.count < found.count) found = current;
    }
    return found;
  }

  add(key: OwnedKey): void {
    const now = this.#second();
    for (const slot of this.#slotsOf(key)) {
      for (;;) {
        const before = Atomics.load(this.#slots, slot);
        const { count } = unpack(before, now);
        const started = count === 0 ? now : before >>> COUNT_BITS;
        const after = ((started << COUNT_BITS) | Math.min(count + 1, COUNT_MASK)) >>> 0;
        if (Atomics.compareExchange(this.#slots, slot, before, after) === before) break;
      }
    }
  }

  #second(): number {
    // Threads have different monotonic clocks.
    return Math.floor(this.#clock.now() / 1000) & SECONDS_MASK;
  }

  #slotsOf(key: string): number[] {
    const digest = createHmac("sha256", this.#seed).update(key).digest();
    return Array.from({ length: ROWS }, (_, row) => row * ROW_SLOTS + (digest.readUInt32LE(row * 4) % ROW_SLOTS));
  }
}

function unpack(slot: number, now: number): MinuteCount {
  const age = (now - (slot >>> COUNT_BITS)) & SECONDS_MASK;
  const count = slot & COUNT_MASK;
  return count === 0 || age >= WINDOW_SECONDS
    ? { count: 0, resetSeconds: WINDOW_SECONDS }
    : { count, resetSeconds: WINDOW_SECONDS - age };
}

/** Returns the table of the process. The names in its keys begin with what they count. */
export function openMinuteCounts({ clock, acquireShared }: Pick<CompileEnv, "acquireShared" | "clock">): MinuteCounts {
  return acquireShared("minute counts", (claim) => new MinuteCounts(clock, claim(MINUTE_COUNTS_BYTES)));
}
