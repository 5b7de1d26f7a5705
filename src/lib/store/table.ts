/**
 * Keys, values and expiries in memory: the whole of the memory store, and what the folder store reads from. Each change
 * is told, in the form in which it can be repeated, so that a journal can be kept of it.
 */
import type { Clock, Timer } from "../process/clock.ts";
import {
  type AddOptions,
  type AddResult,
  checkAmount,
  checkEntry,
  counterOf,
  PAGE_SIZE,
  type Page,
  StoreUnavailable,
} from "./store.ts";

/** Memory must stay bounded: beyond this, new keys are refused until others expire. */
const MAX_ENTRIES = 1_000_000;
const SWEEP_EVERY_MS = 1_000;
/** Per sweep, so that it never blocks the loop for long. */
const SWEPT_AT_ONCE = 5_000;

/** A key with its value from now on; without a value it is gone. Expiry 0: never. */
export type Change = readonly [key: string, value: string, expiresAtMs: number] | readonly [key: string];

interface Row {
  readonly value: string;
  readonly expiresAtMs: number;
}

export class Table {
  readonly #clock: Clock;
  readonly #changed: (change: Change) => void;
  readonly #rows = new Map<string, Row>();
  /** Only while there is something. */
  #sweeping: Timer | undefined = undefined;
  #isClosed = false;
  #swept: Iterator<[string, Row]> | undefined = undefined;

  constructor(clock: Clock, changed: (change: Change) => void = () => undefined) {
    this.#clock = clock;
    this.#changed = changed;
  }

  get size(): number {
    return this.#rows.size;
  }

  get(key: string): string | undefined {
    return this.#live(key)?.value;
  }

  set(key: string, value: string, expiresAtMs = 0): void {
    checkEntry(key, value);
    this.#write(key, value, expiresAtMs);
  }

  delete(key: string): boolean {
    const isThere = this.#live(key) !== undefined;
    if (isThere) this.#remove(key);
    return isThere;
  }

  replace(key: string, expected: string | undefined, value: string, expiresAtMs = 0): boolean {
    checkEntry(key, value);
    if (this.get(key) !== expected) return false;
    this.#write(key, value, expiresAtMs);
    return true;
  }

  add(key: string, amount: number, { limit, expiresAtMs = 0 }: AddOptions = {}): AddResult {
    checkEntry(key);
    checkAmount(amount);
    const row = this.#live(key);
    const before = counterOf(row?.value);
    const total = Math.max(0, before + amount);
    checkAmount(total);
    if (amount > 0 && limit !== undefined && total > limit) return { isAdded: false, total: before };
    if (total !== before) this.#write(key, String(total), row?.expiresAtMs ?? expiresAtMs);
    return { isAdded: true, total };
  }

  /** Keys in the order in which they came; a cursor is the last key of a page. */
  list(prefix: string, cursor?: string): Page {
    const nowMs = this.#clock.now();
    const entries: { key: string; value: string }[] = [];
    const keys = [...this.#rows.keys()].filter((key) => key.startsWith(prefix)).sort();
    for (const key of keys) {
      if (cursor !== undefined && key <= cursor) continue;
      const row = this.#rows.get(key);
      if (row === undefined || isOver(row, nowMs)) continue;
      if (entries.length === PAGE_SIZE) return { entries, cursor: entries[PAGE_SIZE - 1]?.key as string };
      entries.push({ key, value: row.value });
    }
    return { entries };
  }

  /** Repeats a change of an earlier time; it is not told. */
  load(change: Change): void {
    const [key, value, expiresAtMs = 0] = change;
    if (value === undefined) this.#rows.delete(key);
    else this.#put(key, { value, expiresAtMs });
  }

  /** Every entry as a change that makes it. Entries may change meanwhile. */
  *changes(): Generator<Change> {
    const nowMs = this.#clock.now();
    for (const [key, row] of this.#rows) if (!isOver(row, nowMs)) yield [key, row.value, row.expiresAtMs];
  }

  close(): void {
    this.#isClosed = true;
    this.#sweeping?.cancel();
  }

  #live(key: string): Row | undefined {
    const row = this.#rows.get(key);
    return row !== undefined && isOver(row, this.#clock.now()) ? undefined : row;
  }

  #write(key: string, value: string, expiresAtMs: number): void {
    if (expiresAtMs !== 0 && expiresAtMs <= this.#clock.now()) {
      this.#remove(key);
      return;
    }
    if (this.#rows.size >= MAX_ENTRIES && !this.#rows.has(key)) throw new StoreUnavailable("it is full");
    // The journal may refuse, and then nothing has changed.
    this.#changed([key, value, expiresAtMs]);
    this.#put(key, { value, expiresAtMs });
  }

  #put(key: string, row: Row): void {
    this.#rows.set(key, row);
    if (!this.#isClosed) this.#sweeping ??= this.#clock.every(SWEEP_EVERY_MS, () => this.#sweep());
  }

  #remove(key: string): void {
    if (!this.#rows.has(key)) return;
    this.#changed([key]);
    this.#rows.delete(key);
  }

  /** What is over takes no memory for long; a journal needs no word of it, since its entry has its expiry. */
  #sweep(): void {
    const nowMs = this.#clock.now();
    this.#swept ??= this.#rows.entries();
    for (let i = 0; i < SWEPT_AT_ONCE; i++) {
      const next = this.#swept.next();
      if (next.done === true) {
        this.#swept = undefined;
        if (this.#rows.size > 0) return;
        this.#sweeping?.cancel();
        this.#sweeping = undefined;
        return;
      }
      const [key, row] = next.value;
      if (isOver(row, nowMs)) this.#rows.delete(key);
    }
  }
}

function isOver({ expiresAtMs }: Row, nowMs: number): boolean {
  return expiresAtMs !== 0 && expiresAtMs <= nowMs;
}
