/** The work for every input grows in proportion to its bytes, for every hostile shape. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { growthOf } from "./growth.ts";
import { GROUPS, HOSTILE_INPUTS } from "./list.ts";

test("every input has at least five hostile shapes", () => {
  for (const [input, { shapes }] of Object.entries(HOSTILE_INPUTS)) assert.ok(shapes.length >= 5, input);
});

describe("the work is linear", { concurrency: 2 }, () => {
  for (const group of GROUPS)
    test(group.module.replace(/^.*\/(.*)\.js$/, "$1"), async () => {
      const growth = await growthOf(group);
      assert.deepEqual(
        growth.filter(({ isLinear }) => !isLinear),
        [],
      );
    });
});
