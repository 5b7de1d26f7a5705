import assert from "node:assert/strict";
import { test } from "node:test";
import { Owner, ownedKey } from "../../base/owner.ts";
import { createResourceRegistry } from "./resource-registry.ts";

function things() {
  const closed: string[] = [];
  const errors: string[] = [];
  const registry = createResourceRegistry(
    (key, error) => void errors.push(`${key.split("\n")[0]}: ${(error as Error).message}`),
  );
  const open = (generation: ReturnType<typeof registry.begin>, key: string, definition: unknown = 1): object =>
    generation.acquire(
      ownedKey(Owner.standalone, key),
      definition,
      () => ({ key }),
      () => void closed.push(`${key} ${JSON.stringify(definition)}`),
    );
  return { registry, closed, errors, open };
}

test("what is the same is handed over, what changed or is gone is closed when the new configuration serves", () => {
  const { registry, closed, open } = things();
  const first = registry.begin();
  const [kept, changed] = [open(first, "kept"), open(first, "changed", { a: 1 })];
  open(first, "gone");
  first.commit();
  const second = registry.begin();
  assert.equal(open(second, "kept"), kept);
  assert.notEqual(open(second, "changed", { a: 2 }), changed);
  assert.deepEqual(closed, [], "not before it serves");
  second.commit();
  assert.deepEqual(closed.sort(), ['changed {"a":1}', "gone 1"]);
});

test("a configuration that is not used closes only what was opened for it", () => {
  const { registry, closed, open } = things();
  const first = registry.begin();
  open(first, "kept");
  first.commit();
  const refused = registry.begin();
  open(refused, "kept");
  open(refused, "new");
  refused.discard();
  assert.deepEqual(closed, ["new 1"]);
});

test("the same thing twice in one configuration is one", () => {
  const { registry, open } = things();
  const generation = registry.begin();
  assert.equal(open(generation, "pool"), open(generation, "pool"));
});

test("at the end everything is closed, also when one fails", async () => {
  const { registry, closed, errors, open } = things();
  const generation = registry.begin();
  generation.acquire(
    ownedKey(Owner.standalone, "bad"),
    1,
    () => 1,
    () => {
      throw new Error("stuck");
    },
  );
  open(generation, "good");
  generation.commit();
  await registry.closeAll();
  assert.deepEqual([closed, errors], [["good 1"], ["bad: stuck"]]);
});

test("what can retire may finish; at the end it is closed all the same", async () => {
  const { registry, closed } = things();
  let finish: () => void = () => undefined;
  const first = registry.begin();
  for (const key of ["quick", "slow"]) {
    first.acquire(
      ownedKey(Owner.standalone, key),
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
  registry.begin().commit();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(closed, [], "retired, not closed");
  await registry.closeAll();
  assert.deepEqual(closed, ["slow"]);
  finish();
});

test("actions run when a configuration serves, never when it is not used, and one that throws stops no other", () => {
  const { registry, errors } = things();
  const ran: string[] = [];
  const refused = registry.begin();
  refused.serving(() => ran.push("refused"));
  refused.discard();
  const served = registry.begin();
  served.serving(() => {
    throw new Error("bad");
  });
  served.serving(() => ran.push("served"));
  assert.deepEqual(ran, []);
  served.commit();
  assert.deepEqual([ran, errors], [["served"], ["new configuration: bad"]]);
});
