import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { type Drainable, UpstreamDrain } from "./upstream.ts";

function setUp() {
  const clock = fakeClock();
  const closed: string[] = [];
  let emptied = 0;
  const drain = new UpstreamDrain(clock, () => {
    emptied += 1;
  });
  const one = (name: string, pendingCalls: number): Drainable & { pendingCalls: number; sweeps: number } => ({
    pendingCalls,
    sweeps: 0,
    sweep() {
      this.sweeps += 1;
    },
    async close() {
      closed.push(name);
    },
  });
  return { clock, closed, drain, one, emptied: () => emptied };
}

test("an idle upstream is closed at once; a busy one is swept until its calls end", async () => {
  const { clock, closed, drain, one, emptied } = setUp();
  const busy = one("busy", 1);
  drain.add(one("idle", 0));
  drain.add(busy);
  assert.deepEqual(closed, ["idle"]);
  await clock.advance(1_000);
  assert.deepEqual(closed, ["idle"]);
  assert.ok(busy.sweeps >= 5);
  assert.equal(drain.isEmpty, false);
  busy.pendingCalls = 0;
  await clock.advance(200);
  assert.deepEqual(closed, ["idle", "busy"]);
  assert.equal(drain.isEmpty, true);
  assert.ok(emptied() >= 1);
});

test("close does not wait for calls", async () => {
  const { closed, drain, one } = setUp();
  drain.add(one("busy", 3));
  await drain.close();
  assert.deepEqual(closed, ["busy"]);
});
