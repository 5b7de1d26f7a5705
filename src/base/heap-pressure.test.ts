import assert from "node:assert/strict";
import { test } from "node:test";
import { getHeapStatistics } from "node:v8";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { memoryLimit, oldGeneration, processMemory, tightest, watchHeap } from "./heap-pressure.ts";

test("the level follows the heap at the next measurement, up and down, and each change is reported once", async () => {
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

const flags: [name: string, flags: readonly string[], limitMib: number][] = [
  ["a flag", ["--import=x", "--max-old-space-size=300"], 300],
  ["V8's spelling", ["--max_old_space_size=300"], 300],
  ["two words", ["--max-old-space-size", "300"], 300],
  ["the last of two", ["--max-old-space-size=100", "--max-old-space-size=300"], 300],
];
for (const [name, given, limitMib] of flags) {
  test(`the limit comes from Node's flags: ${name}`, () => {
    assert.equal(oldGeneration(given)().limitBytes, limitMib * 1024 * 1024);
  });
}

test("without a flag the limit is V8's minus the young generation", () => {
  const whole = getHeapStatistics().heap_size_limit;
  for (const given of [[], ["--max-old-space-size=0"], ["--max-old-space-size"]]) {
    const { limitBytes } = oldGeneration(given)();
    assert.ok(limitBytes < whole && limitBytes >= 0.9 * whole, `${limitBytes} of ${whole}`);
  }
});

test("retained objects count", () => {
  const read = oldGeneration([]);
  const before = read().usedBytes;
  const kept = new Array(4_000_000).fill(1.5);
  assert.ok(read().usedBytes - before > 30_000_000);
  assert.equal(kept.length, 4_000_000);
});

test("the collector runs often while memory is full, less often while it is tight, and otherwise never", async () => {
  const clock = fakeClock();
  let usedBytes = 800;
  let asked = 0;
  const heap = watchHeap(
    clock,
    () => undefined,
    () => ({ usedBytes, limitBytes: 1000 }),
    () => {
      asked += 1;
    },
  );
  const askedIn = async (ms: number): Promise<number> => {
    asked = 0;
    await clock.advance(ms);
    return asked;
  };
  assert.equal(await askedIn(60_000), 0);
  usedBytes = 940;
  assert.equal(await askedIn(250), 0, "it may be over at the next look");
  assert.equal(await askedIn(60_000), 6);
  usedBytes = 960;
  assert.equal(await askedIn(250), 0, "it may be over at the next look");
  assert.equal(await askedIn(10_000), 5);
  usedBytes = 940;
  assert.equal(await askedIn(500), 1, "what made it full may be garbage by now, and no traffic makes V8 collect it");
  usedBytes = 800;
  assert.equal(await askedIn(60_000), 0);
  heap.stop();
});

test("a slow collector runs less often", async () => {
  const clock = fakeClock();
  let passedMs = 0;
  let asked = 0;
  const heap = watchHeap(
    { ...clock, monotonicMs: () => clock.monotonicMs() + passedMs },
    () => undefined,
    () => ({ usedBytes: 960, limitBytes: 1000 }),
    () => {
      asked += 1;
      passedMs += 1_000;
    },
  );
  await clock.advance(60_000);
  assert.ok(asked >= 5 && asked <= 6, `${asked} times a second in a minute`);
  heap.stop();
});

const MIB = 1024 * 1024;
const processes: [name: string, rss: number, heapTotal: number, external: number, usedMib: number][] = [
  ["bodies outside of the heap count", 400, 50, 280, 394],
  ["what is resident but free does not", 400, 50, 20, 134],
  ["what was never touched does not", 120, 60, 500, 120],
];
for (const [name, rss, heapTotal, external, usedMib] of processes) {
  test(`memory of the process: ${name}`, () => {
    const memory = { rss: rss * MIB, heapTotal: heapTotal * MIB, external: external * MIB };
    const size = processMemory(() => memory, 512 * MIB)();
    assert.deepEqual(size, { of: "process", usedBytes: usedMib * MIB, limitBytes: 512 * MIB });
  });
}

test("retained buffers count, as they do in the system", () => {
  const read = processMemory();
  const before = read().usedBytes;
  const kept = Buffer.alloc(200 * MIB, 1);
  assert.ok(read().usedBytes - before > 100 * MIB);
  assert.equal(kept.length, 200 * MIB);
});

test("the limit is that of the container if it has one", () => {
  assert.equal(memoryLimit(512, 1000), 512);
  for (const none of [0, 1000, 2 ** 63]) assert.equal(memoryLimit(none, 1000), 1000);
});

test("the tighter limit counts", () => {
  const heap = { usedBytes: 50, limitBytes: 100 };
  const whole = { usedBytes: 600, limitBytes: 1000 };
  assert.equal(
    tightest(
      () => heap,
      () => whole,
    )(),
    whole,
  );
  assert.equal(
    tightest(
      () => heap,
      () => ({ ...whole, usedBytes: 400 }),
    )(),
    heap,
  );
});
