import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { CredentialError, createRenewable, type Lease } from "./renewable.ts";

/** Hands out `t1`, `t2`, … for an hour each; fails while `isDown`. */
function renewal(lifeMs = 3_600_000) {
  const clock = fakeClock();
  const state = { asked: 0, isDown: false };
  const renewed = createRenewable<string>({
    name: "test",
    clock,
    logger: silentLogger,
    obtain(): Promise<Lease<string>> {
      state.asked += 1;
      if (state.isDown) return Promise.reject(new Error("down"));
      const expiresAtMs = lifeMs === Number.POSITIVE_INFINITY ? undefined : clock.now() + lifeMs;
      return Promise.resolve({ value: `t${state.asked}`, expiresAtMs });
    },
  });
  return { clock, state, renewed };
}

test("many calls wait for one request, and later ones have it at once", async () => {
  const { renewed, state } = renewal();
  assert.deepEqual(await Promise.all([renewed.get(), renewed.get(), renewed.get()]), ["t1", "t1", "t1"]);
  assert.equal(state.asked, 1);
  assert.equal(renewed.get(), "t1");
});

test("a value is renewed in the background before it expires", async () => {
  const { renewed, state, clock } = renewal();
  await renewed.get();
  await clock.advance(3_600_000 - 4 * 60_000 - 1);
  assert.equal(renewed.get(), "t1");
  assert.equal(state.asked, 1);
  await clock.advance(2);
  assert.equal(renewed.get(), "t1");
  await clock.advance(0);
  assert.equal(renewed.get(), "t2");
  assert.equal(state.asked, 2);
});

test("a renewal that fails leaves the last good one in use until it ends, then the call is refused", async () => {
  const { renewed, state, clock } = renewal();
  await renewed.get();
  state.isDown = true;
  await clock.advance(3_600_000 - 60_000);
  assert.equal(renewed.get(), "t1");
  await clock.advance(44_000);
  assert.equal(renewed.get(), "t1");
  await clock.advance(2_000);
  await assert.rejects(Promise.resolve(renewed.get()), CredentialError);
  state.isDown = false;
  await clock.advance(30_000);
  assert.match(String(await renewed.get()), /^t/);
});

test("after a failure the next renewal waits, however many calls come", async () => {
  const { renewed, state, clock } = renewal();
  state.isDown = true;
  for (let i = 0; i < 5; i++) await assert.rejects(Promise.resolve(renewed.get()), { retryAfterSeconds: 1 });
  assert.equal(state.asked, 1);
  for (let i = 0; i < 8; i++) {
    await clock.advance(30_000);
    await assert.rejects(Promise.resolve(renewed.get()), CredentialError);
  }
  await assert.rejects(Promise.resolve(renewed.get()), { retryAfterSeconds: 30 });
  assert.equal(state.asked, 9);
});

test("what does not end is looked at again every minute", async () => {
  const { renewed, state, clock } = renewal(Number.POSITIVE_INFINITY);
  assert.equal(await renewed.get(), "t1");
  await clock.advance(60_000);
  assert.equal(renewed.get(), "t1");
  await clock.advance(0);
  assert.equal(renewed.get(), "t2");
  assert.equal(state.asked, 2);
});

test("one that the provider refuses is obtained anew, but not while it is new", async () => {
  const { renewed, state, clock } = renewal();
  await renewed.get();
  renewed.invalidate();
  assert.equal(renewed.get(), "t1");
  await clock.advance(60_000);
  renewed.invalidate();
  assert.equal(await renewed.get(), "t2");
  renewed.invalidate();
  assert.equal(renewed.get(), "t2");
  assert.equal(state.asked, 2);
});
