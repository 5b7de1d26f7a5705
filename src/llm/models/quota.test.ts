/** Requests and tokens per minute of one deployment. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { Quota } from "./target.ts";

test("requests: exhausted at the limit, reset when the minute ends", async () => {
  const clock = fakeClock();
  const quota = new Quota(clock, { requests: 2 });
  quota.begin(0);
  await clock.advance(30_000);
  assert.equal(quota.isExhausted(), false);
  quota.begin(0);
  assert.equal(quota.isExhausted(), true);
  assert.equal(quota.secondsLeft(), 30);
  await clock.advance(29_999);
  assert.equal(quota.isExhausted(), true);
  await clock.advance(1);
  assert.equal(quota.isExhausted(), false);
});

test("a minute that has just begun is 60 seconds, also where the sum of its start and a minute is rounded up", () => {
  const startMs = 5_539.8705;
  assert.ok(startMs + 60_000 - startMs > 60_000);
  const quota = new Quota({ ...fakeClock(), monotonicMs: () => startMs }, { requests: 1 });
  quota.begin(0);
  assert.equal(quota.secondsLeft(), 60);
});

test("tokens: the estimate counts until the real number is known, and that once", () => {
  const quota = new Quota(fakeClock(), { tokens: 100 });
  const settle = quota.begin(100);
  assert.equal(quota.isExhausted(), true);
  settle(40);
  settle(0);
  assert.equal(quota.isExhausted(), false);
  quota.begin(10)(60);
  assert.equal(quota.isExhausted(), true);
});

test("a call that ends in another minute changes nothing there", async () => {
  const clock = fakeClock();
  const quota = new Quota(clock, { tokens: 100 });
  const settle = quota.begin(10);
  await clock.advance(60_000);
  quota.begin(50);
  settle(1_000);
  assert.deepEqual(quota.describe(), { requestsThisMinute: 1, tokensThisMinute: 50 });
});
