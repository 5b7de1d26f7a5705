import assert from "node:assert/strict";
import { test } from "node:test";
import { startLimitThreads } from "../../../test/support/limit-threads.ts";
import { createSharedMemory, givenSharedMemory } from "../../base/shared-memory.ts";
import { type BucketRule, BucketStore, keyHash } from "./bucket-store.ts";

const rule: BucketRule = { capacity: 500, refill: 500, windowMs: 3_600_000 };

function shared(maxKeyed: number) {
  const buffer = new SharedArrayBuffer(BucketStore.sharedBytes(maxKeyed));
  return { buffer, store: new BucketStore(rule, maxKeyed, undefined, { buffer, isNew: true, thread: 99 }) };
}

test("four threads together get exactly what one bucket holds", async () => {
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

test("and exactly what the buckets of all keys hold", async () => {
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

test("while keys come and go in four threads, every key is found once and no more are held than fit", async () => {
  const { buffer, store } = shared(32);
  const { threads, go } = await startLimitThreads(4, { buffer, rule, maxKeyed: 32, attempts: 20_000, keys: 100 });
  go();
  await Promise.all(threads.map((one) => one.taken));
  const keys = [...store.views(1)].map(({ key }) => key);
  assert.equal(store.count, 32);
  assert.equal(new Set(keys).size, keys.length);
  for (const { key } of store.views(1)) if (key !== undefined) assert.ok(store.find(key, 1) > 0);
});

test("a thread that dies with the lock in its hand holds nobody up: the lists are put in order", async () => {
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
  // As if it had died in the middle: the lock is marked with its number, and never opened again.
  const control = new Int32Array(buffer, 3 * 8 + 33 * 16, 1);
  await worker.terminate();
  const [, second] = [Atomics.store(control, 0, 1), Atomics.load(control, 0)];
  assert.equal(second, 1);
  store.repairAfter(2);
  assert.equal(Atomics.load(control, 0), 1, "the lock of another thread stays");
  store.repairAfter(1);
  store.lock();
  for (let i = 0; i < 200; i++) store.take(store.open(`after ${i}`, 2), 1);
  store.unlock();
  assert.equal(store.count, 32);
  assert.equal(new Set([...store.views(2)].map(({ key }) => key)).size, 32);
});

test("a key of the longest allowed length and one that is not valid Unicode are found again", () => {
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

test("keys with one more or one other character have other hashes, and another table has others", () => {
  const hashes = new Set<number>();
  for (let i = 0; i < 10_000; i++) hashes.add(keyHash(`key ${i}`, 1, 2));
  assert.ok(hashes.size > 9_990);
  assert.notEqual(keyHash("a", 1, 2), keyHash("a\0", 1, 2));
  assert.notEqual(keyHash("a", 1, 2), keyHash("a", 2, 2));
});

test("a thread finds the memory that the main thread made, and none that it did not", () => {
  const main = createSharedMemory(9);
  const first = main.claim("rule", 64);
  assert.deepEqual([first.isNew, main.claim("rule", 64).isNew], [true, false]);
  const given = givenSharedMemory(1, main.all);
  assert.equal(given.claim("rule", 64).buffer, first.buffer);
  assert.throws(() => given.claim("other", 64), /shared memory is missing: other/);
  const dead: number[] = [];
  main.onDeath("rule", (thread) => dead.push(thread));
  main.died(3);
  main.release("rule");
  main.died(4);
  assert.deepEqual([dead, main.all().size], [[3], 0]);
});
