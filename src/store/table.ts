/**
 * Holds keys, values, and expiry times in memory for the memory store and the folder store. Each change is reported
 * in a format that can be replayed from a journal.
 */
import type { Clock, Timer } from "../base/clock.ts";
import { addHeld, formatHolders, type Hold, type Holders, holdsKey, NUMBERS_KEPT_MS, parseHolders } from "./holds.ts";
import {
  type AddOptions,
  type AddResult,
  type Change,
  checkAmount,
  checkEntry,
  type EntryKind,
  entryKind,
  PAGE_SIZE,
  type Page,
  parseCounter,
  StoreUnavailable,
} from "./store.ts";

const MAX_ENTRIES = 1_000_000;
const PROTECTED_TIMES = 2;
const ROW_BYTES = 160;
const SWEEP_EVERY_MS = 1_000;
const ENTRIES_PER_SWEEP = 5_000;
/** More listings at the same time are slower, because each of their pages collects the keys again. */
const KEPT_LISTINGS = 4;

export interface TableLimits {
  readonly maxBytes: number;
  /** Limits cached responses, which also count toward `maxBytes`. */
  readonly cacheBytes: number;
}

const UNLIMITED: TableLimits = { maxBytes: Number.POSITIVE_INFINITY, cacheBytes: Number.POSITIVE_INFINITY };

/** The sorted keys of a prefix, as of the first page. */
interface Listing {
  readonly keys: readonly string[];
  /** The index of the first key that was not returned. */
  readonly next: number;
}

interface Row {
  readonly value: string;
  readonly expiresAtMs: number;
  readonly bytes: number;
  /** The part of `bytes` that does not depend on the value. */
  readonly keyBytes: number;
  readonly kind: EntryKind;
  /** The key of what is held of this counter, if an operation needed it. */
  holdsKey: string | undefined;
  /** The parsed value, which the next change of the holds uses and changes. */
  holders: Holders | undefined;
}

export class Table {
  readonly #clock: Clock;
  readonly #changed: (change: Change) => void;
  readonly #limits: TableLimits;
  readonly #rows = new Map<string, Row>();
  readonly #cached = new Set<string>();
  #bytes = 0;
  #cachedBytes = 0;
  #sweeping: Timer | undefined = undefined;
  #isClosed = false;
  #swept: Iterator<[string, Row]> | undefined = undefined;
  /** By prefix and cursor. The next page of a listing does not sort all keys again. */
  readonly #listings = new Map<string, Listing>();

  constructor(clock: Clock, changed: (change: Change) => void = () => undefined, limits: TableLimits = UNLIMITED) {
    this.#clock = clock;
    this.#changed = changed;
    this.#limits = limits;
  }

  get size(): number {
    return this.#rows.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get cachedBytes(): number {
    return this.#cachedBytes;
  }

  get(key: string): string | undefined {
    const row = this.#live(key);
    if (row !== undefined && this.#cached.delete(key)) this.#cached.add(key);
    return row?.value;
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

  add(key: string, amount: number, { limit, expiresAtMs = 0, hold }: AddOptions = {}): AddResult {
    const nowMs = this.#clock.now();
    const row = this.#live(key, nowMs);
    if (row === undefined) checkEntry(key);
    checkAmount(amount);
    if (hold !== undefined) return this.#addHeld(key, row, amount, limit, expiresAtMs, hold, nowMs);
    const before = parseCounter(row?.value);
    const total = Math.max(0, before + amount);
    checkAmount(total);
    if (amount > 0 && limit !== undefined && total > limit) return { isAdded: false, total: before };
    if (total !== before) this.#write(key, String(total), row?.expiresAtMs ?? expiresAtMs, nowMs);
    return { isAdded: true, total };
  }

  #addHeld(
    key: string,
    row: Row | undefined,
    amount: number,
    limit: number | undefined,
    expiresAtMs: number,
    hold: Hold,
    nowMs: number,
  ): AddResult {
    const at = row?.holdsKey ?? holdsKey(key);
    const known = this.#live(at, nowMs);
    const before = row === undefined ? undefined : parseCounter(row.value);
    const holders = known?.holders ?? parseHolders(known?.value);
    // If a write fails, the value counts, and is parsed again.
    if (known !== undefined) known.holders = undefined;
    const { isAdded, total } = addHeld(before, holders, amount, limit, hold, nowMs);
    checkAmount(total);
    if (total !== (before ?? 0)) this.#write(key, String(total), row?.expiresAtMs ?? expiresAtMs, nowMs).holdsKey = at;
    const holds = formatHolders(holders);
    if (holds === "") this.delete(at);
    else if (holds !== known?.value)
      this.#write(at, holds, nowMs + hold.forMs + NUMBERS_KEPT_MS, nowMs).holders = holders;
    else known.holders = holders;
    return { isAdded, total };
  }

  /** Sorts entries by key. The cursor is the last key of a page. */
  /** Keys that are added after the first page may be missing. */
  list(prefix: string, cursor?: string): Page {
    const nowMs = this.#clock.now();
    const entries: { key: string; value: string }[] = [];
    const { keys, next } = this.#takeListing(prefix, cursor);
    for (let i = next; i < keys.length; i++) {
      const key = keys[i] as string;
      const row = this.#rows.get(key);
      if (row === undefined || isExpired(row, nowMs)) continue;
      if (entries.length === PAGE_SIZE) {
        const last = entries[PAGE_SIZE - 1]?.key as string;
        const [oldest] = this.#listings.keys();
        if (this.#listings.size === KEPT_LISTINGS) this.#listings.delete(oldest as string);
        this.#listings.set(listingKey(prefix, last), { keys, next: i });
        return { entries, cursor: last };
      }
      entries.push({ key, value: row.value });
    }
    return { entries };
  }

  #takeListing(prefix: string, cursor: string | undefined): Listing {
    const kept = listingKey(prefix, cursor ?? "");
    const listing = this.#listings.get(kept);
    if (cursor === undefined || listing === undefined) {
      const isListed = (key: string): boolean => key.startsWith(prefix) && (cursor === undefined || key > cursor);
      return { keys: [...this.#rows.keys()].filter(isListed).sort(), next: 0 };
    }
    this.#listings.delete(kept);
    return listing;
  }

  /**
   * Replays an earlier change without reporting it. Returns false and removes the key if a cached or expendable entry
   * does not fit, for example because an earlier process had more memory.
   */
  load(change: Change): boolean {
    const [key, value, expiresAtMs = 0] = change;
    if (value === undefined) {
      this.#forget(key);
      return true;
    }
    const before = this.#rows.get(key);
    const row = rowOf(before, key, value, expiresAtMs);
    const { kind } = row;
    if (kind === "cache") this.#evictFor(key, before, row);
    if ((kind === "cache" || kind === "expendable") && !this.#fits(before, row)) {
      this.#forget(key);
      return false;
    }
    this.#put(key, row);
    return true;
  }

  /** Entries may change during the iteration. */
  *changes(): Generator<Change> {
    const nowMs = this.#clock.now();
    for (const [key, row] of this.#rows) if (!isExpired(row, nowMs)) yield [key, row.value, row.expiresAtMs];
  }

  dropCache(): boolean {
    const hadAny = this.#cached.size > 0;
    for (const key of [...this.#cached]) this.#evict(key);
    return hadAny;
  }

  close(): void {
    this.#isClosed = true;
    this.#sweeping?.cancel();
    this.#listings.clear();
  }

  #live(key: string, nowMs = this.#clock.now()): Row | undefined {
    const row = this.#rows.get(key);
    return row !== undefined && isExpired(row, nowMs) ? undefined : row;
  }

  /** A row that has expired already is not kept. */
  #write(key: string, value: string, expiresAtMs: number, nowMs = this.#clock.now()): Row {
    const before = this.#rows.get(key);
    const row = rowOf(before, key, value, expiresAtMs);
    if (isExpired(row, nowMs)) {
      this.#remove(key);
      return row;
    }
    if (row.kind === "cache" || row.kind === "protected") this.#evictFor(key, before, row);
    if (!this.#fits(before, row)) throw new StoreUnavailable("it is full");
    // The journal comes first, so that the entry is unchanged if the journal throws.
    this.#changed([key, value, expiresAtMs]);
    this.#put(key, row);
    return row;
  }

  #fits(before: Row | undefined, { bytes, kind }: Row): boolean {
    const grownBytes = bytes - (before?.bytes ?? 0);
    // Existing protected entries and values that do not grow stay writable in a full table.
    if (before !== undefined && (kind === "protected" || grownBytes <= 0)) return true;
    if (before === undefined && this.#rows.size >= MAX_ENTRIES) return false;
    const { maxBytes, cacheBytes } = this.#limits;
    if (kind === "cache") return this.#cachedBytes + grownBytes <= cacheBytes && this.#bytes + grownBytes <= maxBytes;
    return this.#bytes + grownBytes <= (kind === "protected" ? PROTECTED_TIMES * maxBytes : maxBytes);
  }

  #evictFor(key: string, before: Row | undefined, { bytes, kind }: Row): void {
    const { maxBytes, cacheBytes } = this.#limits;
    const isCached = kind === "cache";
    if (this.#cached.size === 0 || (isCached && bytes > cacheBytes)) return;
    const grownBytes = bytes - (before?.bytes ?? 0);
    for (const oldest of this.#cached) {
      const hasRoom = this.#bytes + grownBytes <= maxBytes;
      if (hasRoom && (!isCached || this.#cachedBytes + grownBytes <= cacheBytes)) return;
      if (oldest !== key) this.#evict(oldest);
    }
  }

  #evict(key: string): void {
    try {
      this.#changed([key]);
    } catch {
      // Memory is freed even if the journal rejects the change. A restart may then load the entry again.
    }
    this.#forget(key);
  }

  #put(key: string, row: Row): void {
    const grownBytes = row.bytes - (this.#rows.get(key)?.bytes ?? 0);
    this.#rows.set(key, row);
    this.#bytes += grownBytes;
    if (row.kind === "cache") {
      this.#cached.delete(key);
      this.#cached.add(key);
      this.#cachedBytes += grownBytes;
    }
    if (!this.#isClosed) this.#sweeping ??= this.#clock.every(SWEEP_EVERY_MS, () => this.#sweep());
  }

  #remove(key: string): void {
    if (!this.#rows.has(key)) return;
    this.#changed([key]);
    this.#forget(key);
  }

  #forget(key: string): void {
    const row = this.#rows.get(key);
    if (row === undefined) return;
    this.#rows.delete(key);
    this.#bytes -= row.bytes;
    if (this.#cached.delete(key)) this.#cachedBytes -= row.bytes;
  }

  /** Removes expired entries. The journal needs no record of the removal, because its entries contain their expiry. */
  #sweep(): void {
    const nowMs = this.#clock.now();
    this.#swept ??= this.#rows.entries();
    for (let i = 0; i < ENTRIES_PER_SWEEP; i++) {
      const next = this.#swept.next();
      if (next.done === true) {
        this.#swept = undefined;
        if (this.#rows.size > 0) return;
        this.#sweeping?.cancel();
        this.#sweeping = undefined;
        return;
      }
      const [key, row] = next.value;
      if (isExpired(row, nowMs)) this.#forget(key);
    }
  }
}

/** A cursor is a key of the listing, so it begins with the prefix. */
function listingKey(prefix: string, cursor: string): string {
  return `${prefix.length} ${cursor}`;
}

function isExpired({ expiresAtMs }: Row, nowMs: number): boolean {
  return expiresAtMs !== 0 && expiresAtMs <= nowMs;
}

/** A key whose row is replaced was checked and measured before. */
function rowOf(before: Row | undefined, key: string, value: string, expiresAtMs: number): Row {
  const keyBytes = before?.keyBytes ?? ROW_BYTES + stringBytes(key);
  const bytes = keyBytes + stringBytes(value);
  const kind = before?.kind ?? entryKind(key);
  return { value, expiresAtMs, bytes, keyBytes, kind, holdsKey: before?.holdsKey, holders: undefined };
}

/** V8 stores a string with any character beyond Latin-1 as two bytes per character. */
function stringBytes(text: string): number {
  return /[^\0-\xff]/.test(text) ? 2 * text.length : text.length;
}
