import assert from "node:assert/strict";
import { test } from "node:test";
import { finish, inTurns, type Steps } from "./turns.ts";

const never = (): boolean => false;

/** Steps of a millisecond or more each. */
function* busy(steps: number, done: string[] = [], name = ""): Steps<string> {
  for (let i = 0; i < steps; i++) {
    const until = performance.now() + 1;
    while (performance.now() < until);
    done.push(name);
    yield;
  }
  return name;
}

test("work that is finished at once returns what it made, or throws", () => {
  assert.equal(finish(busy(2, [], "a")), "a");
  assert.throws(() => finish(failing()), /on purpose/);
});

// biome-ignore lint/correctness/useYield: it fails before
function* failing(): Steps<never> {
  throw new Error("on purpose");
}

test("the loop turns between slices, however much work there is", async () => {
  let turns = 0;
  let isDone = false;
  const turn = (): void => {
    turns += 1;
    if (!isDone) setImmediate(turn);
  };
  setImmediate(turn);
  const order: string[] = [];
  const names = await Promise.all(["a", "b", "c"].map((name) => inTurns(busy(30, order, name), never)));
  isDone = true;
  assert.deepEqual(names, ["a", "b", "c"]);
  // 90 ms of work in slices of 8 ms, one in a turn.
  assert.ok(turns >= 11, String(turns));
  // Each gets a slice before one gets its second.
  assert.ok(order.indexOf("c") < order.lastIndexOf("a"));
});

test("what fails rejects, and the others go on", async () => {
  const other = inTurns(busy(3, [], "b"), never);
  await assert.rejects(inTurns(failing(), never), /on purpose/);
  assert.equal(await other, "b");
});

test("work that nobody waits for stops, and its memory is given back", async () => {
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
  const abandoned = inTurns(work(), () => isOver);
  await inTurns(busy(1), never);
  isOver = true;
  const before = done.length;
  await inTurns(busy(20), never);
  assert.equal(done.length, before);
  assert.ok(before > 0 && isCleared);
  assert.equal(await Promise.race([abandoned, Promise.resolve("unsettled")]), "unsettled");
});

test("work that cannot say whether it is over fails alone: the others go on", async () => {
  let isGone = false;
  const asked = inTurns(busy(1_000, [], "a"), () => {
    if (isGone) throw new Error("gone");
    return false;
  });
  const other = inTurns(busy(3, [], "b"), never);
  await inTurns(busy(1), never);
  isGone = true;
  await assert.rejects(asked, /gone/);
  assert.equal(await other, "b");
});
