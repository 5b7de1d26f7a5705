import assert from "node:assert/strict";
import { test } from "node:test";
import { startLimitThreads } from "../../../test/support/limit-threads.ts";
import { Owner, ownedKey } from "../../base/owner.ts";
import { createSharedMemory, givenSharedMemory } from "../../base/shared-memory.ts";
import { type BucketRule, BucketStore, keyHash } from "./bucket-store.ts";

const rule: BucketRule = { capacity: 500, refill: 500, windowMs: 3_600_000 };

function shared(maxKeyed: number) {
  const buffer = new SharedArrayBuffer(BucketStore.sharedBytes(maxKeyed));
  return { buffer, store: new BucketStore(rule, maxKeyed, undefined, { buffer, isNew: true, thread: 99 }) };
}

test("four threads together take exactly the capacity of a shared bucket", async () => {
  const { buffer, store } = shared(0);
  const { threads, go } = await startLimitThreads(4, { buffer, rule, maxKeyed: 0, attempts: 20_000, keys: 0 });
  go();
  const taken = await Promise.all(threads.map((one) => one.taken));
  assert.equal(
    taken.reduce((sum, one) => sum + one, 0),
    rule.capacity,
  );
  assert.equal(store.remaining(store.find(undefined, 1)), 0);
});

test("four threads together take exactly the capacity of all keyed buckets", async () => {
  const { buffer, store } = shared(64);
  const { threads, go } = await startLimitThreads(4, { buffer, rule, maxKeyed: 64, attempts: 40_000, keys: 60 });
  go();
  const taken = await Promise.all(threads.map((one) => one.taken));
  assert.equal(
    taken.reduce((sum, one) => sum + one, 0),
    60 * rule.capacity,
  );
  assert.equal(store.count, 60);
});

test("evictions from four threads leave no duplicate keys and never exceed the maximum", async () => {
  const { buffer, store } = shared(32);
  const { threads, go } = await startLimitThreads(4, { buffer, rule, maxKeyed: 32, attempts: 20_000, keys: 100 });
  go();
  await Promise.all(threads.map((one) => one.taken));
  const keys = [...store.views(1)].map(({ key }) => key);
  assert.equal(store.count, 32);
  assert.equal(new Set(keys).size, keys.length);
  for (const { key } of store.views(1)) if (key !== undefined) assert.ok(store.find(key, 1) > 0);
});

test("the lock of a thread that died is released and the indexes are rebuilt", async () => {
  const { buffer, store } = shared(32);
  const { threads, go } = await startLimitThreads(1, {
    buffer,
    rule,
    maxKeyed: 32,
    attempts: 0,
    keys: 100,
    isEndless: true,
  });
  const worker = threads[0]?.worker;
  assert.ok(worker);
  go();
  // Simulates a death inside the critical section: the lock holds the thread's number and is never released.
  const control = new Int32Array(buffer, 3 * 8 + 33 * 16, 1);
  await worker.terminate();
  const [, second] = [Atomics.store(control, 0, 1), Atomics.load(control, 0)];
  assert.equal(second, 1);
  store.repairAfter(2);
  assert.equal(Atomics.load(control, 0), 1, "the lock of another thread stays");
  store.repairAfter(1);
  store.withLock(() => {
    for (let i = 0; i < 200; i++) store.take(store.open(`after ${i}`, 2), 1);
  });
  assert.equal(store.count, 32);
  assert.equal(new Set([...store.views(2)].map(({ key }) => key)).size, 32);
});

test("a throw while the lock is held releases it and leaves consistent buckets", () => {
  const maxKeyed = 8;
  const buffer = new SharedArrayBuffer(BucketStore.sharedBytes(maxKeyed));
  let failAt = Number.POSITIVE_INFINITY;
  let evictions = 0;
  const evicted = (): void => {
    evictions += 1;
    if (evictions === failAt) throw new Error("eviction failed");
  };
  const store = new BucketStore(rule, maxKeyed, evicted, { buffer, isNew: true, thread: 1 });
  const control = new Int32Array(buffer, 3 * 8 + (maxKeyed + 1) * 16, 1);
  const use = (prefix: string, count: number): void => {
    for (let i = 0; i < count; i++) store.withLock(() => store.take(store.open(`${prefix} ${i}`, 1), 1));
  };
  for (const throwing of [1, 2, 5, 8]) {
    use("before", maxKeyed);
    failAt = evictions + throwing;
    // The callback runs in the middle of an eviction, between removing the old key and adding the new one.
    assert.throws(() => use(`during ${throwing}`, maxKeyed + 1), /eviction failed/);
    assert.equal(Atomics.load(control, 0), 0, "the lock is free");
    use(`after ${throwing}`, 3 * maxKeyed);
    assert.equal(store.count, maxKeyed);
    const keys = [...store.views(1)].map(({ key }) => key);
    assert.equal(new Set(keys).size, maxKeyed);
    for (const key of keys) assert.ok(key !== undefined && store.find(key, 1) > 0);
  }
});

test("finds keys of the maximum length and keys that are not valid Unicode", () => {
  const { store } = shared(4);
  const long = "x".repeat(128);
  for (const [key, amount] of [
    [long, 1],
    ["a\ud800", 2],
    ["a\ud801", 3],
  ] as const)
    store.take(store.open(key, 1), amount);
  assert.deepEqual(
    [long, "a\ud800", "a\ud801"].map((key) => store.remaining(store.find(key, 1))),
    [499, 498, 497],
  );
  assert.ok([...store.views(1)].some(({ key }) => key === long));
});

test("the hash depends on every character, the length and the seed", () => {
  const hashes = new Set<number>();
  for (let i = 0; i < 10_000; i++) hashes.add(keyHash(`key ${i}`, 1, 2));
  assert.ok(hashes.size > 9_990);
  assert.notEqual(keyHash("a", 1, 2), keyHash("a\0", 1, 2));
  assert.notEqual(keyHash("a", 1, 2), keyHash("a", 2, 2));
});

test("a thread finds only memory that the main thread allocated", () => {
  const main = createSharedMemory(9);
  const name = ownedKey(Owner.standalone, "rule");
  const first = main.claim(name, 64);
  assert.deepEqual([first.isNew, main.claim(name, 64).isNew], [true, false]);
  const given = givenSharedMemory(1, main.all);
  assert.equal(given.claim(name, 64).buffer, first.buffer);
  assert.throws(() => given.claim(ownedKey(Owner.standalone, "other"), 64), /shared memory is missing: other/);
  const dead: number[] = [];
  main.onDeath(name, (thread) => dead.push(thread));
  main.died(3);
  main.release(name);
  main.died(4);
  assert.deepEqual([dead, main.all().size], [[3], 0]);
});
