/** The counting finds work that grows with the square of the input, and gives the same counts each time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { growthOf } from "./growth.ts";
import { linearWork, quadraticWork } from "./known-work.ts";

const module = new URL("./known-work.js", import.meta.url).href;

test("quadratic work is found, linear work is not, and two runs count the same", async () => {
  const [quadratic, linear, again] = await Promise.all([
    growthOf({ module, inputs: quadraticWork }),
    growthOf({ module, inputs: linearWork }),
    growthOf({ module, inputs: quadraticWork }),
  ]);
  assert.deepEqual(
    quadratic.filter(({ isLinear }) => isLinear),
    [],
  );
  assert.deepEqual(
    linear.filter(({ isLinear }) => !isLinear),
    [],
  );
  assert.deepEqual(again, quadratic);
});
