import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { watchHeap } from "./heap-pressure.ts";

test("the level follows the heap at the next look, up and down, and each change is told once", async () => {
  const clock = fakeClock();
  const told: string[] = [];
  let usedBytes = 0;
  const heap = watchHeap(
    clock,
    (level) => void told.push(level),
    () => ({ usedBytes, limitBytes: 1000 }),
  );
  const steps = [
    [899, "normal"],
    [900, "tight"],
    [949, "tight"],
    [950, "full"],
    [2000, "full"],
    [901, "tight"],
    [10, "normal"],
  ] as const;
  for (const [used, level] of steps) {
    const before = heap.level;
    usedBytes = used;
    assert.equal(heap.level, before, "between two looks nothing is read");
    await clock.advance(250);
    assert.equal(heap.level, level, `${used} of 1000`);
  }
  assert.deepEqual(told, ["tight", "full", "tight", "normal"]);
  heap.stop();
  assert.equal(clock.pending(), 0);
});

test("this process is far from its limit, and what it keeps counts", async () => {
  const clock = fakeClock();
  const told: string[] = [];
  const heap = watchHeap(clock, (level) => void told.push(level));
  await clock.advance(250);
  assert.deepEqual([heap.level, told], ["normal", []]);
  heap.stop();
});
