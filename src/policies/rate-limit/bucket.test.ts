import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { clampCount } from "../../llm/usage/usage.ts";
import { advanced, type Bucket, type BucketRule, debited, resetSeconds } from "./bucket-store.ts";

const threePlusThree: BucketRule = { capacity: 6, refill: 3, windowMs: 1000 };

const cases = [
  { name: "nothing within the window", remaining: 0, afterMs: 999, expected: 0 },
  { name: "the base limit at the window's end", remaining: 0, afterMs: 1000, expected: 3 },
  { name: "the base limit for each window that ended", remaining: 1, afterMs: 1999, expected: 4 },
  { name: "no more than the capacity", remaining: 5, afterMs: 1000, expected: 6 },
  { name: "no more than the capacity after a year", remaining: 0, afterMs: 31_536_000_000, expected: 6 },
  { name: "nothing when the clock went back", remaining: 2, afterMs: -5000, expected: 2 },
];
for (const { name, remaining, afterMs, expected } of cases) {
  test(`a bucket gets ${name}`, () => {
    const bucket = advanced(threePlusThree, { remaining, windowStartMs: 10_000 }, 10_000 + afterMs);
    assert.equal(bucket.remaining, expected);
  });
}

test("windows stay aligned to the first use", () => {
  assert.equal(advanced(threePlusThree, { remaining: 0, windowStartMs: 250 }, 3_900).windowStartMs, 3_250);
});

test("a debit is clamped to 0 and the capacity", () => {
  assert.equal(debited(threePlusThree, 2, 39), 0);
  assert.equal(debited(threePlusThree, 5, -39), 6);
});

test("the reset is rounded up and never 0, so a retry after it succeeds [S8-18]", () => {
  assert.equal(resetSeconds(threePlusThree, 0, 0), 1);
  assert.equal(resetSeconds({ ...threePlusThree, windowMs: 60_000 }, 0, 1), 60);
  assert.equal(resetSeconds(threePlusThree, 0, 999), 1);
});

const counts: [unknown, number | undefined][] = [
  [39, 39],
  [0, 0],
  [-1e6, 0],
  [1e308, 1e9],
  [Number.POSITIVE_INFINITY, 1e9],
  [12.9, 12],
  [Number.NaN, undefined],
  ["39", undefined],
  [null, undefined],
  [undefined, undefined],
];
for (const [value, expected] of counts) {
  test(`the count ${String(value)} (${typeof value}) is read as ${expected} [B3]`, () =>
    assert.equal(clampCount(value), expected));
}

/** A reference model that advances one window and one millisecond at a time. */
function model(rule: BucketRule) {
  let remaining = rule.capacity;
  let startMs: number | undefined;
  return {
    at(nowMs: number): number {
      startMs ??= nowMs;
      while (startMs + rule.windowMs <= nowMs) {
        startMs += rule.windowMs;
        remaining += rule.refill;
        if (remaining > rule.capacity) remaining = rule.capacity;
      }
      return remaining;
    },
    debit(amount: number): void {
      remaining -= amount;
      if (remaining < 0) remaining = 0;
      if (remaining > rule.capacity) remaining = rule.capacity;
    },
  };
}

test("a bucket matches the step-by-step model over random debits, settlements and clock jumps", () => {
  const rule = fc.record({
    refill: fc.integer({ min: 1, max: 50 }),
    burst: fc.integer({ min: 0, max: 50 }),
    windowMs: fc.constantFrom(1000, 60_000),
  });
  const step = fc.record({
    waitMs: fc.oneof(fc.integer({ min: 0, max: 1500 }), fc.integer({ min: 0, max: 400_000 })),
    amount: fc.integer({ min: -60, max: 120 }),
  });
  fc.assert(
    fc.property(rule, fc.array(step, { maxLength: 60 }), ({ refill, burst, windowMs }, steps) => {
      const bucketRule = { capacity: refill + burst, refill, windowMs };
      const expected = model(bucketRule);
      let nowMs = 5_000;
      let bucket: Bucket = { remaining: bucketRule.capacity, windowStartMs: nowMs };
      expected.at(nowMs);
      for (const { waitMs, amount } of steps) {
        nowMs += waitMs;
        bucket = advanced(bucketRule, bucket, nowMs);
        assert.equal(bucket.remaining, expected.at(nowMs));
        bucket = { ...bucket, remaining: debited(bucketRule, bucket.remaining, amount) };
        expected.debit(amount);
        assert.ok(bucket.remaining >= 0 && bucket.remaining <= bucketRule.capacity);
        const later = advanced(
          bucketRule,
          bucket,
          nowMs + resetSeconds(bucketRule, bucket.windowStartMs, nowMs) * 1000,
        );
        assert.ok(later.remaining >= 1, "whoever waits until the reset finds something");
      }
    }),
  );
});
