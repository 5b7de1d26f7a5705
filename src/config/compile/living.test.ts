import assert from "node:assert/strict";
import { test } from "node:test";
import { createLivingThings } from "./living.ts";

function things() {
  const closed: string[] = [];
  const errors: string[] = [];
  const living = createLivingThings(
    (key, error) => void errors.push(`${key.split("\n")[0]}: ${(error as Error).message}`),
  );
  const open = (generation: ReturnType<typeof living.begin>, key: string, definition: unknown = 1): object =>
    generation.keep(
      key,
      definition,
      () => ({ key }),
      () => void closed.push(`${key} ${JSON.stringify(definition)}`),
    );
  return { living, closed, errors, open };
}

test("what is the same is handed over, what changed or is gone is closed when the new configuration serves", () => {
  const { living, closed, open } = things();
  const first = living.begin();
  const [kept, changed] = [open(first, "kept"), open(first, "changed", { a: 1 })];
  open(first, "gone");
  first.commit();
  const second = living.begin();
  assert.equal(open(second, "kept"), kept);
  assert.notEqual(open(second, "changed", { a: 2 }), changed);
  assert.deepEqual(closed, [], "not before it serves");
  second.commit();
  assert.deepEqual(closed.sort(), ['changed {"a":1}', "gone 1"]);
});

test("a configuration that is not used closes only what was opened for it", () => {
  const { living, closed, open } = things();
  const first = living.begin();
  open(first, "kept");
  first.commit();
  const refused = living.begin();
  open(refused, "kept");
  open(refused, "new");
  refused.discard();
  assert.deepEqual(closed, ["new 1"]);
});

test("the same thing twice in one configuration is one", () => {
  const { living, open } = things();
  const generation = living.begin();
  assert.equal(open(generation, "pool"), open(generation, "pool"));
});

test("at the end everything is closed, also when one fails", async () => {
  const { living, closed, errors, open } = things();
  const generation = living.begin();
  generation.keep(
    "bad",
    1,
    () => 1,
    () => {
      throw new Error("stuck");
    },
  );
  open(generation, "good");
  generation.commit();
  await living.closeAll();
  assert.deepEqual([closed, errors], [["good 1"], ["bad: stuck"]]);
});

test("what can retire may finish; at the end it is closed all the same", async () => {
  const { living, closed } = things();
  let finish: () => void = () => undefined;
  const first = living.begin();
  for (const key of ["quick", "slow"]) {
    first.keep(
      key,
      1,
      () => key,
      () => void closed.push(key),
      () =>
        key === "quick"
          ? Promise.resolve()
          : new Promise((resolve) => {
              finish = resolve;
            }),
    );
  }
  first.commit();
  living.begin().commit();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(closed, [], "retired, not closed");
  await living.closeAll();
  assert.deepEqual(closed, ["slow"]);
  finish();
});

test("actions run when a configuration serves, never when it is not used, and one that throws stops no other", () => {
  const { living, errors } = things();
  const ran: string[] = [];
  const refused = living.begin();
  refused.serving(() => ran.push("refused"));
  refused.discard();
  const served = living.begin();
  served.serving(() => {
    throw new Error("bad");
  });
  served.serving(() => ran.push("served"));
  assert.deepEqual(ran, []);
  served.commit();
  assert.deepEqual([ran, errors], [["served"], ["a new configuration: bad"]]);
});
