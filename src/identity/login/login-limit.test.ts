import assert from "node:assert/strict";
import { test } from "node:test";
import { testEnv } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { openLoginLimit } from "./login-limit.ts";

const from = (address: string, isForwarded = false) => ({
  listener: "default",
  source: { address, port: 1, isForwarded },
});

function opened() {
  const clock = fakeClock();
  return { clock, limit: openLoginLimit({ ...testEnv, clock }) };
}

function allowed(count: number, take: () => void): number {
  for (let i = 0; i < count; i++)
    try {
      take();
    } catch (error) {
      assert.equal((error as { code: string }).code, "rate_limited");
      return i;
    }
  return count;
}

test("a client has 120 requests of each kind in a minute, and an IPv6 network is one client", async () => {
  const { clock, limit } = opened();
  assert.equal(
    allowed(200, () => limit.enter("token", from("192.0.2.1"))),
    120,
  );
  assert.equal(
    allowed(200, () => limit.enter("registration", from("192.0.2.1"))),
    120,
  );
  assert.equal(
    allowed(20, () => limit.enter("token", from("192.0.2.2"))),
    20,
  );
  let next = 0;
  assert.equal(
    allowed(200, () => limit.enter("token", from(`2001:db8::${(next++).toString(16)}`))),
    120,
  );
  await clock.advance(60_000);
  assert.equal(
    allowed(1, () => limit.enter("token", from("192.0.2.1"))),
    1,
  );
});

test("behind a proxy that is not trusted, clients are not told apart", () => {
  const { limit } = opened();
  assert.equal(
    allowed(1_000, () => limit.enter("token", from("192.0.2.1", true))),
    1_000,
  );
});

test("a listener forwards 600 requests of each kind in a minute, and 429 says when the next one is possible", async () => {
  const { clock, limit } = opened();
  assert.equal(
    allowed(700, () => limit.forward("token", "default")),
    600,
  );
  assert.equal(
    allowed(10, () => limit.forward("registration", "default")),
    10,
  );
  assert.equal(
    allowed(10, () => limit.forward("token", "other")),
    10,
  );
  await clock.advance(45_000);
  assert.throws(() => limit.forward("token", "default"), { headers: { "retry-after": "15" } });
  await clock.advance(15_000);
  assert.equal(
    allowed(1, () => limit.forward("token", "default")),
    1,
  );
});
