/**
 * The buckets of one rule: one shared bucket, and one for each key, at most 65,536 of them (spec 8), in typed-array
 * slots. When all are taken, the one whose loss costs least makes room: a bucket that is full again, else the least
 * used, and an exhausted one only if there is nothing else, so that a flood of fresh keys restores nobody's budget.
 * Every operation takes constant time: buckets are listed by how much of them is used and by when their window ends.
 * Several threads may have the same buckets: then a slot is valid between `lock` and `unlock` only.
 */
import { type Bucket, type BucketRule, debited, refilled, resetSeconds, windowsEnded } from "./bucket.ts";
import { type BucketKeys, OwnKeys } from "./bucket-keys.ts";
import { SharedBuckets } from "./shared-buckets.ts";
import { NO_SLOT, SlotLists } from "./slot-lists.ts";

export const MAX_BUCKETS = 65_536;
/** For requests without a key: never evicted. */
export const SHARED_SLOT = 0;

const FIRST_KEYED_SLOT = 1;
const FIRST_SIZE = 64;
/** Level 0 is full, the last is exhausted, between them the share that is used. */
const LEVELS = 32;
const EXHAUSTED = LEVELS - 1;
/** Windows that end in the same 64th of a window are listed together. */
const TICKS = 64;
/** Ends lie up to a whole window ahead: of 64ths, the one that goes on now and 64 more. */
const TICK_LISTS = TICKS + 1;
/** With a burst, a bucket may need several windows to be full: how many of these are brought up to date per eviction. */
const MAX_REFRESHED = 8;
/** When the window of a bucket began that nobody used. */
export const UNUSED = -1;
/** Numbers beside the buckets, for all threads the same. */
const HAND = 0;
const USED_SLOTS = 1;
const REFUSALS = 2;
const STATE_NUMBERS = 3;
/** How many of each list there are, for whoever makes room for them. */
const LISTS: [number, number] = [LEVELS, TICK_LISTS];

export interface BucketView extends Bucket {
  /** undefined for the shared bucket. */
  readonly key: string | undefined;
  readonly resetSeconds: number;
}

/** Where buckets lie that other threads use too. */
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
    this.#keys = shared ?? new OwnKeys();
    this.#state = shared?.state ?? new Float64Array(STATE_NUMBERS);
    this.#remaining = shared?.remaining ?? new Float64Array(this.#size);
    this.#windowStartMs = shared?.windowStartMs ?? new Float64Array(this.#size);
    this.#generation = shared?.generation ?? new Uint32Array(this.#size);
    this.#byUse = new SlotLists(LEVELS, this.#size, shared?.byUse);
    this.#byWindowEnd = new SlotLists(TICK_LISTS, this.#size, shared?.byWindowEnd);
    if (shared !== undefined && !shared.isNew) return;
    this.#byUse.empty();
    this.#byWindowEnd.empty();
    this.#state[USED_SLOTS] = FIRST_KEYED_SLOT;
    this.#remaining[SHARED_SLOT] = rule.capacity;
    this.#windowStartMs[SHARED_SLOT] = UNUSED;
  }

  /** How much memory threads must share for a rule with so many keys. */
  static sharedBytes(maxKeyed: number): number {
    return SharedBuckets.bytes(FIRST_KEYED_SLOT + maxKeyed, LISTS);
  }

  /** No other thread changes anything until `unlock`. Between the two nothing may wait or throw. */
  lock(): void {
    this.#shared?.lock();
  }

  unlock(): void {
    this.#shared?.unlock();
  }

  /** The thread died: if it held the lock, what it left half done is put in order. */
  repairAfter(thread: number): void {
    const shared = this.#shared;
    if (!shared?.isLockedBy(thread)) return;
    this.#byUse.empty();
    this.#byWindowEnd.empty();
    const used = Math.min(this.#size, this.#state[USED_SLOTS] as number);
    shared.rebuild(used);
    for (let slot = FIRST_KEYED_SLOT; slot < used; slot++) this.#relist(slot);
    shared.unlock();
  }

  /** Keyed buckets that are held. */
  get count(): number {
    return (this.#state[USED_SLOTS] as number) - FIRST_KEYED_SLOT;
  }

  /** Requests that were refused for want of any of them. */
  get refusals(): number {
    return this.#state[REFUSALS] as number;
  }

  refused(): void {
    this.#state[REFUSALS] = this.refusals + 1;
  }

  /** The bucket as it is now, or NO_SLOT: a key that has none yet would get a full one. */
  find(key: string | undefined, nowMs: number): number {
    const slot = key === undefined ? SHARED_SLOT : this.#keys.slotOf(key);
    if (slot !== NO_SLOT) this.#refresh(slot, nowMs);
    return slot;
  }

  /** The same, but a key that has no bucket gets one. */
  open(key: string | undefined, nowMs: number): number {
    const found = this.find(key, nowMs);
    if (found !== NO_SLOT || key === undefined) {
      // The shared bucket's window begins with its first use, like any other's.
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

  /** Tells whether a slot still holds the bucket that it held. */
  generation(slot: number): number {
    return this.#generation[slot] as number;
  }

  /** Takes up to the amount (or gives back, if negative) and says how much that was. */
  take(slot: number, amount: number): number {
    const before = this.#remaining[slot] as number;
    const after = debited(this.rule, before, amount);
    this.#remaining[slot] = after;
    if (slot !== SHARED_SLOT) this.#relist(slot);
    return before - after;
  }

  /** All buckets as they are now, for the admin interface; changes nothing, and holds no other thread up. */
  *views(nowMs: number): Iterable<BucketView> {
    for (let slot = 0; slot <= this.count; slot++) {
      const generation = this.generation(slot);
      const key = this.#keys.keyAt(slot);
      const startMs = this.#windowStartMs[slot] as number;
      const left = this.#remaining[slot] as number;
      // Another thread gave the slot to another key just now.
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
    // Looking at a bucket is using it: one that is asked for again and again must not be the one that goes.
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
    this.#remaining = copyOf(this.#remaining, new Float64Array(this.#size));
    this.#windowStartMs = copyOf(this.#windowStartMs, new Float64Array(this.#size));
    this.#generation = copyOf(this.#generation, new Uint32Array(this.#size));
    this.#byUse.grow(this.#size);
    this.#byWindowEnd.grow(this.#size);
  }

  #evict(nowMs: number): number {
    let slot = this.#byUse.first(0);
    if (slot === NO_SLOT) slot = this.#fullAgain(nowMs);
    for (let level = 1; slot === NO_SLOT; level++) slot = this.#byUse.first(level);
    this.#keys.remove(slot);
    this.#evicted();
    return slot;
  }

  /**
   * A bucket that time has filled. The hand goes round the lists of windows' ends up to now; each list has the
   * ends of one 64th only, because a listed end is never further away than one window: if the first one is still open,
   * so are the others, or they ended within this 64th.
   */
  #fullAgain(nowMs: number): number {
    const nowTick = this.#tick(nowMs);
    let hand = Math.max(this.#state[HAND] as number, nowTick - TICK_LISTS);
    for (let refreshed = 0; refreshed < MAX_REFRESHED; ) {
      this.#state[HAND] = hand;
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

function copyOf<Numbers extends Float64Array | Uint32Array>(from: Numbers, into: Numbers): Numbers {
  into.set(from);
  return into;
}
