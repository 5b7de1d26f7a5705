import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createPause, createShare } from "./pause.ts";

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

function shareOf(processors: number, cpuPerMs: number) {
  let nowMs = 0;
  let usedMs = 0;
  let restedMs = 0;
  const meter = {
    monotonicMs: () => nowMs,
    cpuMs: () => usedMs,
    rest(ms: number) {
      nowMs += ms;
      restedMs += ms;
    },
  };
  const breathe = createShare(meter, processors);
  return {
    work(ms: number): number {
      const before = restedMs;
      for (let i = 0; i < ms * 10; i++) {
        nowMs += 0.1;
        usedMs += 0.1 * cpuPerMs;
        breathe();
      }
      return restedMs - before;
    },
  };
}

test("work that takes its share or less does not rest", () => {
  assert.equal(shareOf(1.2, 1).work(1_000), 0);
});

test("threads that work for it are made up for by rests", () => {
  const rested = shareOf(1, 1.5).work(1_000);
  assert.ok(rested > 490 && rested < 510, `${rested}`);
});

test("however much others take, a quarter of the time is left", () => {
  const rested = shareOf(1, 40).work(1_000);
  assert.ok(rested > 2_800 && rested <= 3_000, `${rested}`);
});
