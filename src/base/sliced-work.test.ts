import assert from "node:assert/strict";
import { test } from "node:test";
import { finish, runInSlices, type Steps } from "./sliced-work.ts";

const never = (): boolean => false;

/** Each step takes at least a millisecond. */
function* busy(steps: number, done: string[] = [], name = ""): Steps<string> {
  for (let i = 0; i < steps; i++) {
    const until = performance.now() + 1;
    while (performance.now() < until);
    done.push(name);
    yield;
  }
  return name;
}

test("work that is finished at once returns its result or throws", () => {
  assert.equal(finish(busy(2, [], "a")), "a");
  assert.throws(() => finish(failing()), /on purpose/);
});

// biome-ignore lint/correctness/useYield: it fails before
function* failing(): Steps<never> {
  throw new Error("on purpose");
}

test("the event loop runs between slices, however much work is queued", async () => {
  let turns = 0;
  let isDone = false;
  const turn = (): void => {
    turns += 1;
    if (!isDone) setImmediate(turn);
  };
  setImmediate(turn);
  const order: string[] = [];
  const names = await Promise.all(["a", "b", "c"].map((name) => runInSlices(busy(30, order, name), never)));
  isDone = true;
  assert.deepEqual(names, ["a", "b", "c"]);
  // 90 ms of work in slices of 8 ms, one per turn of the event loop.
  assert.ok(turns >= 11, String(turns));
  // Each gets a slice before any gets its second.
  assert.ok(order.indexOf("c") < order.lastIndexOf("a"));
});

test("work that throws rejects, and the others continue", async () => {
  const other = runInSlices(busy(3, [], "b"), never);
  await assert.rejects(runInSlices(failing(), never), /on purpose/);
  assert.equal(await other, "b");
});

test("canceled work stops, and its memory is released", async () => {
  const done: string[] = [];
  let isOver = false;
  let isCleared = false;
  function* work(): Steps<string> {
    try {
      return yield* busy(1_000, done, "a");
    } finally {
      isCleared = true;
    }
  }
  const abandoned = runInSlices(work(), () => isOver);
  await runInSlices(busy(1), never);
  isOver = true;
  const before = done.length;
  await runInSlices(busy(20), never);
  assert.equal(done.length, before);
  assert.ok(before > 0 && isCleared);
  assert.equal(await Promise.race([abandoned, Promise.resolve("unsettled")]), "unsettled");
});

test("work whose isOver throws fails alone, and the others continue", async () => {
  let isGone = false;
  const asked = runInSlices(busy(1_000, [], "a"), () => {
    if (isGone) throw new Error("gone");
    return false;
  });
  const other = runInSlices(busy(3, [], "b"), never);
  await runInSlices(busy(1), never);
  isGone = true;
  await assert.rejects(asked, /gone/);
  assert.equal(await other, "b");
});
