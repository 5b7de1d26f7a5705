import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { cpuMs } from "../../../test/support/cpu-time.ts";
import {
  advanced,
  type Bucket,
  type BucketMemory,
  type BucketRule,
  BucketStore,
  debited,
  MAX_BUCKETS,
  NO_SLOT,
} from "./bucket-store.ts";

const rule: BucketRule = { capacity: 3, refill: 3, windowMs: 1000 };

function use(store: BucketStore, key: string | undefined, amount: number, nowMs: number): number {
  return store.take(store.open(key, nowMs), amount);
}

function left(store: BucketStore, key: string | undefined, nowMs: number): number | undefined {
  const slot = store.find(key, nowMs);
  return slot === NO_SLOT ? undefined : store.remaining(slot);
}

test("every key has its own bucket; requests without a key share one", () => {
  const store = new BucketStore(rule, 10);
  use(store, "a", 2, 0);
  use(store, undefined, 1, 0);
  assert.deepEqual([left(store, "a", 0), left(store, "b", 0), left(store, undefined, 0)], [1, undefined, 2]);
  assert.equal(store.count, 1);
});

test("the shared bucket's window starts at its first use", () => {
  const store = new BucketStore(rule, 0);
  assert.equal(store.resetSeconds(store.find(undefined, 700), 700), 1);
  use(store, undefined, 3, 700);
  assert.equal(left(store, undefined, 1_699), 0);
  assert.equal(left(store, undefined, 1_700), 3);
});

test("a full bucket is evicted first, however often it was used", () => {
  const store = new BucketStore(rule, 3);
  for (const nowMs of [0, 1, 2]) use(store, "full again", 1, nowMs);
  use(store, "b", 1, 900);
  use(store, "c", 1, 901);
  use(store, "fresh", 1, 1_100);
  assert.deepEqual(
    ["full again", "b", "c", "fresh"].map((key) => store.find(key, 1_100) !== NO_SLOT),
    [false, true, true, true],
  );
});

test("the least used bucket is evicted next; ties go to the least recently used [S8-6]", () => {
  const store = new BucketStore({ capacity: 10, refill: 10, windowMs: 60_000 }, 4);
  use(store, "much", 6, 0);
  use(store, "little, old", 1, 1);
  use(store, "little, new", 1, 2);
  use(store, "exhausted", 10, 3);
  use(store, "fresh", 1, 4);
  assert.equal(store.find("little, old", 5), NO_SLOT);
  for (const key of ["much", "little, new", "exhausted", "fresh"]) assert.notEqual(store.find(key, 5), NO_SLOT);
});

test("an exhausted bucket survives a flood of new keys twice the size of the store [B1] [S8-6]", () => {
  let evictions = 0;
  const store = new BucketStore(rule, MAX_BUCKETS, () => {
    evictions += 1;
  });
  use(store, "drained", 3, 0);
  for (let i = 0; i < 2 * MAX_BUCKETS; i++) use(store, `fresh ${i}`, 1, 1);
  assert.equal(left(store, "drained", 2), 0);
  assert.equal(MAX_BUCKETS, 65_536);
  assert.equal(store.count, MAX_BUCKETS);
  assert.equal(evictions, MAX_BUCKETS + 1);
});

test("a full store costs as much per use as a partly filled one, and does not grow [R48]", () => {
  const store = new BucketStore(rule, MAX_BUCKETS);
  const round = (from: number): number => {
    const before = cpuMs();
    for (let i = from; i < from + MAX_BUCKETS; i++) use(store, `key ${i}`, 1, 1);
    return cpuMs() - before;
  };
  const fillingMs = round(0);
  const heapBefore = process.memoryUsage().heapUsed;
  const evictingMs = [1, 2, 3, 4].map((times) => round(times * MAX_BUCKETS));
  assert.equal(store.count, MAX_BUCKETS);
  // A full scan at each eviction would take thousands of times as long.
  assert.ok(Math.min(...evictingMs) < 20 * fillingMs + 50, `${evictingMs} ms after ${fillingMs} ms`);
  assert.ok(process.memoryUsage().heapUsed - heapBefore < 40e6);
});

test("an exhausted bucket is evicted only if all buckets are exhausted", () => {
  const store = new BucketStore(rule, 2);
  use(store, "a", 3, 0);
  use(store, "b", 3, 1);
  use(store, "c", 3, 2);
  assert.deepEqual(
    ["a", "b", "c"].map((key) => left(store, key, 3)),
    [undefined, 0, 0],
  );
});

test("reusing a slot for another key changes its generation", () => {
  const store = new BucketStore(rule, 1);
  const slot = store.open("a", 0);
  const generation = store.generation(slot);
  assert.equal(store.open("b", 0), slot);
  assert.notEqual(store.generation(slot), generation);
});

test("finds a key that is not valid Unicode", () => {
  const store = new BucketStore(rule, 4);
  use(store, "a\ud800", 1, 0);
  use(store, "a\ud801", 2, 0);
  assert.deepEqual([left(store, "a\ud800", 0), left(store, "a\ud801", 0), store.count], [2, 1, 2]);
});

test("views show refilled buckets and change nothing", () => {
  const store = new BucketStore(rule, 4);
  use(store, "a", 3, 0);
  use(store, undefined, 1, 500);
  const seen = [...store.views(1_200)].map(({ key, remaining, resetSeconds }) => ({ key, remaining, resetSeconds }));
  assert.deepEqual(seen, [
    { key: undefined, remaining: 2, resetSeconds: 1 },
    { key: "a", remaining: 3, resetSeconds: 1 },
  ]);
});

for (const [where, memory] of [
  ["of one thread", () => undefined],
  ["in shared memory", sharedMemory],
] as const)
  test(`the store ${where} matches a map-based model over random operations, and evicts the cheapest bucket`, () =>
    checkAgainstMap(memory));

function sharedMemory(maxKeyed: number) {
  return { buffer: new SharedArrayBuffer(BucketStore.sharedBytes(maxKeyed)), isNew: true, thread: 1 };
}

function checkAgainstMap(memory: (maxKeyed: number) => BucketMemory | undefined): void {
  const maxKeyed = 6;
  const step = fc.record({
    key: fc.integer({ min: 0, max: 11 }),
    amount: fc.integer({ min: -2, max: 7 }),
    waitMs: fc.constantFrom(0, 0, 0, 1, 40, 400, 1000, 2500),
  });
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 3 }), fc.array(step, { maxLength: 120 }), (burst, steps) => {
      const tested: BucketRule = { capacity: 4 + burst, refill: 4, windowMs: 1000 };
      const store = new BucketStore(tested, maxKeyed, undefined, memory(maxKeyed));
      const expected = new Map<string, Bucket>();
      let nowMs = 0;
      for (const { key: number, amount, waitMs } of steps) {
        nowMs += waitMs;
        const key = `key ${number}`;
        for (const [known, bucket] of expected) expected.set(known, advanced(tested, bucket, nowMs));
        if (!expected.has(key) && expected.size === maxKeyed) {
          store.open(key, nowMs);
          const [gone] = [...expected.keys()].filter((known) => store.find(known, nowMs) === NO_SLOT);
          assertCostsLeast(tested, expected, gone, nowMs);
          expected.delete(gone as string);
        }
        const bucket = expected.get(key) ?? { remaining: tested.capacity, windowStartMs: nowMs };
        const slot = store.open(key, nowMs);
        assert.equal(store.remaining(slot), bucket.remaining);
        const after = debited(tested, bucket.remaining, amount);
        assert.equal(store.take(slot, amount), bucket.remaining - after);
        expected.set(key, { ...bucket, remaining: after });
      }
      assert.equal(store.count, expected.size);
    }),
    { numRuns: 300 },
  );
}

function assertCostsLeast(
  tested: BucketRule,
  buckets: ReadonlyMap<string, Bucket>,
  gone: string | undefined,
  nowMs: number,
): void {
  assert.ok(gone !== undefined, "exactly one bucket made room");
  const remaining = (buckets.get(gone) as Bucket).remaining;
  if (remaining === tested.capacity) return;
  for (const bucket of buckets.values()) {
    // Window ends are rounded to 1/64 of a window, so a bucket that refilled earlier than that must have been found.
    const isFullForATick = bucket.remaining === tested.capacity && nowMs - bucket.windowStartMs > tested.windowMs / 64;
    assert.ok(!isFullForATick, "a full bucket was passed over");
    const isLate = nowMs - bucket.windowStartMs <= tested.windowMs / 64;
    assert.ok(isLate || bucket.remaining <= remaining, "a less used bucket was passed over");
  }
}
