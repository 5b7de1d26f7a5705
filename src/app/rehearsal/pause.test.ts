import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createPause } from "./rehearse.ts";

test("work rests when its slice is over, and a new slice begins after the rest", async () => {
  const clock = fakeClock();
  let rests = 0;
  const pause = createPause(clock, 5, async () => {
    rests += 1;
    await clock.advance(100);
  });
  const pieces = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) await pause();
  };
  await pieces(100);
  assert.equal(rests, 0);
  await clock.advance(5);
  await pieces(8);
  assert.equal(rests, 1);
  await pieces(100);
  assert.equal(rests, 1);
});
