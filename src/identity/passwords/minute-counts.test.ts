import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { type OwnedKey, Owner, ownedKey } from "../../base/owner.ts";
import { MINUTE_COUNTS_BYTES, MinuteCounts } from "./minute-counts.ts";

const keyOf = (name: string): OwnedKey => ownedKey(Owner.standalone, name);

/** Two threads with one table. */
function tables() {
  const clock = fakeClock();
  const buffer = new SharedArrayBuffer(MINUTE_COUNTS_BYTES);
  return {
    clock,
    first: new MinuteCounts(clock, { buffer, isNew: true }),
    second: new MinuteCounts(clock, { buffer, isNew: false }),
  };
}

const step = fc.record({
  key: fc.constantFrom("a", "b", "c"),
  inFirst: fc.boolean(),
  waitMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 90_000 })),
});

test("counts of all threads are one count, which ends a minute after its first failure", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const { clock, first, second } = tables();
      const model = new Map<string, { startedSecond: number; failures: number }>();
      for (const { key, inFirst, waitMs } of steps) {
        await clock.advance(waitMs);
        const nowSeconds = Math.floor(clock.now() / 1000);
        const known = model.get(key);
        const isOver = known === undefined || nowSeconds - known.startedSecond >= 60;
        const expected = isOver ? { startedSecond: nowSeconds, failures: 0 } : known;
        assert.deepEqual((inFirst ? second : first).count(keyOf(key)), {
          count: expected.failures,
          resetSeconds: 60 - (nowSeconds - expected.startedSecond),
        });
        (inFirst ? first : second).add(keyOf(key));
        model.set(key, { ...expected, failures: expected.failures + 1 });
      }
    }),
    { numRuns: 200 },
  );
});

test("failures of 50,000 other clients lift no count and take no memory", () => {
  const { first } = tables();
  for (let i = 0; i < 20; i++) first.add(keyOf("victim"));
  for (let i = 0; i < 50_000; i++) first.add(keyOf(`other ${i}`));
  assert.ok(first.count(keyOf("victim")).count >= 20);
});

test("a count does not overflow into its window", () => {
  const { first } = tables();
  for (let i = 0; i < 5_000; i++) first.add(keyOf("a"));
  assert.deepEqual(first.count(keyOf("a")), { count: 4_095, resetSeconds: 60 });
});
