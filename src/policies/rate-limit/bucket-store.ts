/**
 * Stores the token buckets of one rate limit rule, one shared bucket and a bounded number of keyed buckets, in typed
 * arrays that threads can share. With shared memory, a slot number is valid only inside `withLock`.
 */
import { randomFillSync } from "node:crypto";
import { MAX_KEY_LENGTH } from "../../base/bounded-key.ts";

export interface BucketRule {
  /** A full bucket holds this many units, which is the limit plus the burst. */
  readonly capacity: number;
  /** Each window adds this many units, regardless of the burst. */
  readonly refill: number;
  readonly windowMs: number;
}

export interface Bucket {
  /** Remaining units are whole numbers from 0 to `capacity`. Debt does not carry over into the next window. */
  readonly remaining: number;
  readonly windowStartMs: number;
}

/** Returns the number of windows that ended since `windowStartMs`, or 0 if the clock went backwards. */
export function windowsEnded(rule: BucketRule, windowStartMs: number, nowMs: number): number {
  return nowMs < windowStartMs + rule.windowMs ? 0 : Math.floor((nowMs - windowStartMs) / rule.windowMs);
}

export function refilled(rule: BucketRule, remaining: number, windows: number): number {
  return Math.min(rule.capacity, remaining + windows * rule.refill);
}

export function advanced(rule: BucketRule, bucket: Bucket, nowMs: number): Bucket {
  const windows = windowsEnded(rule, bucket.windowStartMs, nowMs);
  if (windows === 0) return bucket;
  return {
    remaining: refilled(rule, bucket.remaining, windows),
    windowStartMs: bucket.windowStartMs + windows * rule.windowMs,
  };
}

/** A negative amount is a refund. The result is clamped to the range from 0 to the capacity. */
export function debited(rule: BucketRule, remaining: number, amount: number): number {
  return Math.max(0, Math.min(rule.capacity, remaining - amount));
}

/** Returns the seconds until the window ends, rounded up, and at least 1. */
export function resetSeconds(rule: BucketRule, windowStartMs: number, nowMs: number): number {
  return Math.max(1, Math.ceil((rule.windowMs - (nowMs - windowStartMs)) / 1000));
}

export interface BucketKeys {
  slotOf(key: string): number;
  /** Returns undefined for the shared slot. */
  keyAt(slot: number): string | undefined;
  set(slot: number, key: string): void;
  remove(slot: number): void;
}

export class LocalKeys implements BucketKeys {
  readonly #slotOf = new Map<string, number>();
  readonly #keys: (string | undefined)[] = [undefined];

  slotOf(key: string): number {
    return this.#slotOf.get(key) ?? NO_SLOT;
  }

  keyAt(slot: number): string | undefined {
    return this.#keys[slot];
  }

  set(slot: number, key: string): void {
    const copy = copyString(key);
    this.#slotOf.set(copy, slot);
    this.#keys[slot] = copy;
  }

  remove(slot: number): void {
    this.#slotOf.delete(this.#keys[slot] as string);
  }
}

/**
 * Copies a key, because a slice of a large header would keep the whole header alive. The round trip through UTF-8 gives
 * an ASCII key one byte per character; strings that UTF-8 cannot represent (lone surrogates) go through UTF-16.
 */
function copyString(key: string): string {
  const copy = Buffer.from(key, "utf8").toString("utf8");
  return copy === key ? copy : Buffer.from(key, "utf16le").toString("utf16le");
}

const UNLINKED = -1;
export const NO_SLOT = -1;

/** Implements doubly linked lists of slots in typed arrays. Each slot is in at most one list. */
export class SlotLists {
  readonly #lists: number;
  /** The first `lists` entries are the list heads. Slot n is at index `lists + n`. */
  #next: Int32Array;
  #previous: Int32Array;

  /** The creator of shared `memory` must call `clear` before use. */
  constructor(lists: number, slots: number, memory?: { readonly next: Int32Array; readonly previous: Int32Array }) {
    this.#lists = lists;
    this.#next = memory?.next ?? new Int32Array(lists + slots);
    this.#previous = memory?.previous ?? new Int32Array(lists + slots);
    if (memory === undefined) this.clear();
  }

  clear(): void {
    this.#next.fill(UNLINKED);
    this.#previous.fill(UNLINKED);
    for (let list = 0; list < this.#lists; list++) {
      this.#next[list] = list;
      this.#previous[list] = list;
    }
  }

  /** Returns the slot that was appended first, or NO_SLOT if the list is empty. */
  first(list: number): number {
    const node = this.#next[list] as number;
    return node === list ? NO_SLOT : node - this.#lists;
  }

  append(list: number, slot: number): void {
    const node = this.#lists + slot;
    const last = this.#previous[list] as number;
    this.#next[last] = node;
    this.#previous[node] = last;
    this.#next[node] = list;
    this.#previous[list] = node;
  }

  /** Does nothing if the slot is in no list. */
  remove(slot: number): void {
    const node = this.#lists + slot;
    const next = this.#next[node] as number;
    if (next === UNLINKED) return;
    const previous = this.#previous[node] as number;
    this.#next[previous] = next;
    this.#previous[next] = previous;
    this.#next[node] = UNLINKED;
  }

  grow(slots: number): void {
    this.#next = grown(this.#next, this.#lists + slots);
    this.#previous = grown(this.#previous, this.#lists + slots);
  }
}

function grown(array: Int32Array, length: number): Int32Array {
  const larger = new Int32Array(length).fill(UNLINKED);
  larger.set(array);
  return larger;
}

/**
 * Computes HalfSipHash-1-3 over the UTF-16 code units. Clients choose the keys, so an unseeded hash would allow
 * collision attacks.
 */
export function keyHash(key: string, seed0: number, seed1: number): number {
  let v0 = seed0;
  let v1 = seed1;
  let v2 = seed0 ^ 0x6c796765;
  let v3 = seed1 ^ 0x74656462;
  const { length } = key;
  const last = length + (length & 1);
  // The word at `last` is the length. Three rounds without a word follow it.
  for (let i = 0; i <= last + 6; i += 2) {
    let word = 0;
    if (i < last) word = key.charCodeAt(i) | ((i + 1 < length ? key.charCodeAt(i + 1) : 0) << 16);
    else if (i === last) word = length;
    else if (i === last + 2) v2 ^= 0xff;
    v3 ^= word;
    v0 = (v0 + v1) | 0;
    v1 = ((v1 << 5) | (v1 >>> 27)) ^ v0;
    v0 = (v0 << 16) | (v0 >>> 16);
    v2 = (v2 + v3) | 0;
    v3 = ((v3 << 8) | (v3 >>> 24)) ^ v2;
    v0 = (v0 + v3) | 0;
    v3 = ((v3 << 7) | (v3 >>> 25)) ^ v0;
    v2 = (v2 + v1) | 0;
    v1 = ((v1 << 13) | (v1 >>> 19)) ^ v2;
    v2 = (v2 << 16) | (v2 >>> 16);
    v0 ^= word;
  }
  return (v1 ^ v3) >>> 0;
}

/** The control array holds the lock, two hash seeds, and padding for alignment. */
const CONTROL_NUMBERS = 4;
const UNLOCKED = 0;
/** After this many spins, the waiter sleeps between attempts. */
const SPINS_BEFORE_SLEEP = 2_000;
const SLEEP_MS = 1;

export interface ListMemory {
  readonly next: Int32Array;
  readonly previous: Int32Array;
}

/** Lays out one rule's buckets in shared memory, with a spin lock and a hash table of keys. */
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
    // The widest elements come first, so that every array is aligned.
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
      if (spins >= SPINS_BEFORE_SLEEP) Atomics.wait(control, 0, holder, SLEEP_MS);
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
    // Slot 0 is the shared bucket and has no key, so 0 terminates a chain.
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

  /** Rebuilds the hash table from the stored keys, because a failed lock holder may have left it inconsistent. */
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

function headsFor(slots: number): number {
  return 2 ** Math.ceil(Math.log2(2 * slots));
}

export const MAX_BUCKETS = 65_536;
/** Requests without a key share this bucket, which is never evicted. */
export const SHARED_SLOT = 0;

const FIRST_KEYED_SLOT = 1;
const FIRST_SIZE = 64;
/** Level 0 is for full buckets, the last level for exhausted buckets, and each level between for an equal range. */
const LEVELS = 32;
const EXHAUSTED = LEVELS - 1;
/** Buckets are grouped by window end, rounded to 1/64 of a window. */
const TICKS = 64;
/** A window ends at most one window ahead, so the lists cover the current tick and the next 64. */
const TICK_LISTS = TICKS + 1;
/** Limits the buckets refreshed per eviction. With a burst, a bucket may need several windows to refill. */
const MAX_REFRESHED = 8;
export const UNUSED = -1;
const CLOCK_HAND = 0;
const USED_SLOTS = 1;
const REJECTIONS = 2;
const STATE_NUMBERS = 3;
const LISTS: [number, number] = [LEVELS, TICK_LISTS];

export interface BucketView extends Bucket {
  /** The shared bucket has no key. */
  readonly key: string | undefined;
  readonly resetSeconds: number;
}

export interface BucketMemory {
  readonly buffer: SharedArrayBuffer;
  readonly isNew: boolean;
  readonly thread: number;
}

export class BucketStore {
  readonly rule: BucketRule;
  readonly #maxKeyed: number;
  readonly #shared: SharedBuckets | undefined;
  readonly #keys: BucketKeys;
  readonly #byUse: SlotLists;
  readonly #byWindowEnd: SlotLists;
  readonly #tickMs: number;
  readonly #evicted: () => void;
  readonly #state: Float64Array;
  #size: number;
  #remaining: Float64Array;
  #windowStartMs: Float64Array;
  #generation: Uint32Array;

  constructor(rule: BucketRule, maxKeyed: number, evicted: () => void = () => undefined, memory?: BucketMemory) {
    this.rule = rule;
    this.#evicted = evicted;
    this.#maxKeyed = maxKeyed;
    this.#tickMs = rule.windowMs / TICKS;
    const shared =
      memory && new SharedBuckets(memory.buffer, memory.isNew, FIRST_KEYED_SLOT + maxKeyed, LISTS, memory.thread);
    this.#shared = shared;
    this.#size = shared?.slots ?? FIRST_KEYED_SLOT + Math.min(maxKeyed, FIRST_SIZE);
    this.#keys = shared ?? new LocalKeys();
    this.#state = shared?.state ?? new Float64Array(STATE_NUMBERS);
    this.#remaining = shared?.remaining ?? new Float64Array(this.#size);
    this.#windowStartMs = shared?.windowStartMs ?? new Float64Array(this.#size);
    this.#generation = shared?.generation ?? new Uint32Array(this.#size);
    this.#byUse = new SlotLists(LEVELS, this.#size, shared?.byUse);
    this.#byWindowEnd = new SlotLists(TICK_LISTS, this.#size, shared?.byWindowEnd);
    if (shared !== undefined && !shared.isNew) return;
    this.#byUse.clear();
    this.#byWindowEnd.clear();
    this.#state[USED_SLOTS] = FIRST_KEYED_SLOT;
    this.#remaining[SHARED_SLOT] = rule.capacity;
    this.#windowStartMs[SHARED_SLOT] = UNUSED;
  }

  static sharedBytes(maxKeyed: number): number {
    return SharedBuckets.bytes(FIRST_KEYED_SLOT + maxKeyed, LISTS);
  }

  /**
   * Runs `action` while no other thread can change the buckets. The action must be short and synchronous, because other
   * threads spin meanwhile. If it throws, the indexes are rebuilt before the lock is released. Calls must not be
   * nested.
   */
  withLock<Result>(action: () => Result): Result {
    const shared = this.#shared;
    if (shared === undefined) return action();
    shared.lock();
    try {
      return action();
    } catch (error) {
      this.#rebuildIndexes(shared);
      throw error;
    } finally {
      shared.unlock();
    }
  }

  /**
   * Releases the lock of a thread that died while holding it. The indexes are rebuilt first, because they may be
   * inconsistent.
   */
  repairAfter(thread: number): void {
    const shared = this.#shared;
    if (!shared?.isLockedBy(thread)) return;
    this.#rebuildIndexes(shared);
    shared.unlock();
  }

  #rebuildIndexes(shared: SharedBuckets): void {
    this.#byUse.clear();
    this.#byWindowEnd.clear();
    const used = Math.min(this.#size, this.#state[USED_SLOTS] as number);
    shared.rebuild(used);
    for (let slot = FIRST_KEYED_SLOT; slot < used; slot++) this.#relist(slot);
  }

  /** Excludes the shared bucket. */
  get count(): number {
    return (this.#state[USED_SLOTS] as number) - FIRST_KEYED_SLOT;
  }

  get rejections(): number {
    return this.#state[REJECTIONS] as number;
  }

  countRejection(): void {
    this.#state[REJECTIONS] = this.rejections + 1;
  }

  /** Refills the key's bucket up to `nowMs` and returns its slot, or NO_SLOT if the key has no bucket yet. */
  find(key: string | undefined, nowMs: number): number {
    const slot = key === undefined ? SHARED_SLOT : this.#keys.slotOf(key);
    if (slot !== NO_SLOT) this.#refresh(slot, nowMs);
    return slot;
  }

  open(key: string | undefined, nowMs: number): number {
    const found = this.find(key, nowMs);
    if (found !== NO_SLOT || key === undefined) {
      // The shared bucket's window starts at its first use, as a keyed bucket's does.
      if (this.#windowStartMs[found] === UNUSED) this.#windowStartMs[found] = nowMs;
      return found;
    }
    const slot = this.count < this.#maxKeyed ? this.#nextUnused() : this.#evict(nowMs);
    this.#keys.set(slot, key);
    this.#generation[slot] = (this.#generation[slot] as number) + 1;
    this.#remaining[slot] = this.rule.capacity;
    this.#windowStartMs[slot] = nowMs;
    this.#relist(slot);
    return slot;
  }

  remaining(slot: number): number {
    return this.#remaining[slot] as number;
  }

  resetSeconds(slot: number, nowMs: number): number {
    const startMs = this.#windowStartMs[slot] as number;
    return resetSeconds(this.rule, startMs === UNUSED ? nowMs : startMs, nowMs);
  }

  /** Changes when the slot is reused for another key. */
  generation(slot: number): number {
    return this.#generation[slot] as number;
  }

  /** Takes up to the amount (or refunds it, if negative) and returns how much was taken. */
  take(slot: number, amount: number): number {
    const before = this.#remaining[slot] as number;
    const after = debited(this.rule, before, amount);
    this.#remaining[slot] = after;
    if (slot !== SHARED_SLOT) this.#relist(slot);
    return before - after;
  }

  /** The iterator changes nothing and takes no lock. Remaining units include all refills up to `nowMs`. */
  *views(nowMs: number): Iterable<BucketView> {
    for (let slot = 0; slot <= this.count; slot++) {
      const generation = this.generation(slot);
      const key = this.#keys.keyAt(slot);
      const startMs = this.#windowStartMs[slot] as number;
      const left = this.#remaining[slot] as number;
      // Another thread may have reassigned the slot while it was read.
      if (startMs === UNUSED || generation !== this.generation(slot)) continue;
      const windows = windowsEnded(this.rule, startMs, nowMs);
      const windowStartMs = startMs + windows * this.rule.windowMs;
      yield {
        key,
        remaining: refilled(this.rule, left, windows),
        windowStartMs,
        resetSeconds: resetSeconds(this.rule, windowStartMs, nowMs),
      };
    }
  }

  #refresh(slot: number, nowMs: number): void {
    const startMs = this.#windowStartMs[slot] as number;
    if (startMs === UNUSED) return;
    const windows = windowsEnded(this.rule, startMs, nowMs);
    if (windows > 0) {
      this.#windowStartMs[slot] = startMs + windows * this.rule.windowMs;
      this.#remaining[slot] = refilled(this.rule, this.#remaining[slot] as number, windows);
    }
    // A lookup counts as use, so that a bucket that is checked often is evicted later.
    if (slot !== SHARED_SLOT) this.#relist(slot);
  }

  #relist(slot: number): void {
    this.#byUse.remove(slot);
    this.#byWindowEnd.remove(slot);
    const level = this.#level(slot);
    this.#byUse.append(level, slot);
    if (level > 0) this.#byWindowEnd.append(this.#tick(this.#windowEndMs(slot)) % TICK_LISTS, slot);
  }

  #level(slot: number): number {
    const remaining = this.#remaining[slot] as number;
    const { capacity } = this.rule;
    if (remaining >= capacity) return 0;
    if (remaining <= 0) return EXHAUSTED;
    return 1 + Math.floor(((capacity - remaining) / capacity) * (EXHAUSTED - 1));
  }

  #windowEndMs(slot: number): number {
    return (this.#windowStartMs[slot] as number) + this.rule.windowMs;
  }

  #tick(atMs: number): number {
    return Math.floor(atMs / this.#tickMs);
  }

  #nextUnused(): number {
    const slot = this.#state[USED_SLOTS] as number;
    if (slot === this.#size) this.#grow();
    this.#state[USED_SLOTS] = slot + 1;
    return slot;
  }

  #grow(): void {
    this.#size = Math.min(FIRST_KEYED_SLOT + this.#maxKeyed, this.#size * 2);
    this.#remaining = copyInto(this.#remaining, new Float64Array(this.#size));
    this.#windowStartMs = copyInto(this.#windowStartMs, new Float64Array(this.#size));
    this.#generation = copyInto(this.#generation, new Uint32Array(this.#size));
    this.#byUse.grow(this.#size);
    this.#byWindowEnd.grow(this.#size);
  }

  #evict(nowMs: number): number {
    let slot = this.#byUse.first(0);
    if (slot === NO_SLOT) slot = this.#findRefilled(nowMs);
    for (let level = 1; slot === NO_SLOT; level++) slot = this.#byUse.first(level);
    this.#keys.remove(slot);
    this.#evicted();
    return slot;
  }

  /** Scans the window-end lists up to now with a clock hand and returns a bucket that has refilled, or NO_SLOT. */
  #findRefilled(nowMs: number): number {
    const nowTick = this.#tick(nowMs);
    let hand = Math.max(this.#state[CLOCK_HAND] as number, nowTick - TICK_LISTS);
    for (let refreshed = 0; refreshed < MAX_REFRESHED; ) {
      this.#state[CLOCK_HAND] = hand;
      const slot = this.#byWindowEnd.first(hand % TICK_LISTS);
      if (slot === NO_SLOT || this.#windowEndMs(slot) > nowMs) {
        if (hand >= nowTick) return NO_SLOT;
        hand += 1;
        continue;
      }
      this.#refresh(slot, nowMs);
      if (this.#remaining[slot] === this.rule.capacity) return slot;
      refreshed += 1;
    }
    return NO_SLOT;
  }
}

function copyInto<Numbers extends Float64Array | Uint32Array>(from: Numbers, into: Numbers): Numbers {
  into.set(from);
  return into;
}
