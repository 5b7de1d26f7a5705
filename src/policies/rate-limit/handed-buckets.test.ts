import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { Clock } from "../../base/clock.ts";
import { type BucketRule, BucketStore } from "./bucket-store.ts";
import { createHandedBuckets } from "./handed-buckets.ts";

const MINUTE: BucketRule = { capacity: 100, refill: 100, windowMs: 60_000 };
const WALL_MS = Date.UTC(2026, 0, 1);

function limit(rule: BucketRule, clock: Clock) {
  const store = new BucketStore(rule, 1000);
  const now = (): number => Math.floor(clock.monotonicMs());
  return {
    handed: createHandedBuckets("rule", store, clock),
    take(key: string | undefined, amount: number): void {
      store.take(store.open(key, now()), amount);
    },
    left(key: string | undefined): number {
      const slot = store.find(key, now());
      return slot < 0 ? rule.capacity : store.remaining(slot);
    },
    reset: (key: string | undefined): number => store.resetSeconds(store.find(key, now()), now()),
  };
}

/** The new process starts 100 s after the old one. */
async function processes(rule = MINUTE) {
  const oldClock = fakeClock(WALL_MS);
  await oldClock.advance(100_000);
  const newClock = fakeClock(WALL_MS + 100_000);
  const old = limit(rule, oldClock);
  const next = limit(rule, newClock);
  const advance = async (ms: number): Promise<void> => {
    await oldClock.advance(ms);
    await newClock.advance(ms);
  };
  return { old, next, advance };
}

test("the new process has the same usage and window ends, for each key and the shared bucket", async () => {
  const { old, next, advance } = await processes();
  old.take("ada", 60);
  old.take(undefined, 7);
  await advance(20_000);
  next.handed.add(old.handed.used("ever"));
  assert.deepEqual([next.left("ada"), next.left(undefined), next.left("bob")], [40, 93, 100]);
  assert.deepEqual([next.reset("ada"), next.reset(undefined)], [40, 40]);
  await advance(39_999);
  assert.equal(next.left("ada"), 40);
  await advance(1);
  assert.equal(next.left("ada"), 100);
});

test("later usage and refunds in the old process are added exactly once", async () => {
  const { old, next } = await processes();
  old.take("ada", 60);
  next.handed.add(old.handed.used("ever"));
  next.take("ada", 10);
  old.take("ada", 5);
  old.take("bob", 1);
  next.handed.add(old.handed.used("last"));
  assert.deepEqual([next.left("ada"), next.left("bob")], [25, 99]);
  old.take("ada", -3);
  next.handed.add(old.handed.used("last"));
  assert.equal(next.left("ada"), 28);
  assert.deepEqual(old.handed.used("last"), []);
});

test("a failed upgrade does not affect the next one", async () => {
  const { old, next } = await processes();
  old.take("ada", 60);
  old.handed.used("ever");
  old.take("ada", 5);
  next.handed.add(old.handed.used("ever"));
  assert.equal(next.left("ada"), 35);
});

test("a window that ended during the transfer refills by the base limit, not by the burst", async () => {
  const { old, next, advance } = await processes({ capacity: 150, refill: 100, windowMs: 60_000 });
  old.take("ada", 150);
  old.take("bob", 40);
  const rows = old.handed.used("ever");
  await advance(60_000);
  next.handed.add(rows);
  assert.deepEqual([next.left("ada"), next.left("bob")], [100, 150]);
  old.take("ada", 2);
  next.handed.add(old.handed.used("last"));
  assert.equal(next.left("ada"), 98);
});
