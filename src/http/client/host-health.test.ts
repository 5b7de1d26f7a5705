import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { HostHealth } from "./http-pool.ts";

test("a failure ejects the server, then one trial request passes, then all", async () => {
  const clock = fakeClock();
  const said: string[] = [];
  const health = new HostHealth(clock, {
    ejected: (reason, forMs) => said.push(`${reason} ${forMs}`),
    recovered: () => said.push("back"),
  });
  health.requestSent();
  assert.equal(health.isEjected, false);
  health.failed("refused");
  health.failed("refused");
  assert.deepEqual([health.isEjected, health.describe()], [true, { health: { failures: 1, resting: true } }]);
  await clock.advance(1000);
  assert.equal(health.isEjected, false);
  health.requestSent();
  assert.equal(health.isEjected, true, "one request is on its way");
  health.failed("refused");
  await clock.advance(1999);
  assert.equal(health.isEjected, true);
  await clock.advance(1);
  health.requestSent();
  health.worked();
  assert.deepEqual([health.isEjected, health.describe()], [false, {}]);
  assert.deepEqual(said, ["refused 1000", "refused 2000", "back"]);
});

test("ejections end, and an unanswered trial is replaced by another", async () => {
  const clock = fakeClock();
  const health = new HostHealth(clock, { ejected: () => undefined, recovered: () => undefined });
  for (let i = 0; i < 40; i++) {
    health.failed("refused");
    await clock.advance(30_000);
    assert.equal(health.isEjected, false);
  }
  health.requestSent();
  await clock.advance(9_999);
  assert.equal(health.isEjected, true);
  await clock.advance(1);
  assert.equal(health.isEjected, false);
});
