import assert from "node:assert/strict";
import { test } from "node:test";
import { shapeDifferences } from "./json-shape.ts";

test("compares fields and types, but not values and lengths", () => {
  assert.deepEqual(shapeDifferences({ a: 1, b: ["x"] }, { b: ["y", "z"], a: 2 }), []);
  assert.deepEqual(shapeDifferences({ a: 1, gone: 1 }, { a: "1", new: 1 }), [
    "$.a: number → string",
    "$.gone: missing",
    "$.new: added",
  ]);
  assert.deepEqual(shapeDifferences({ items: [{ id: 1 }, { id: 2, x: null }] }, { items: [{ id: "a", x: null }] }), [
    "$.items[].id: number → string",
  ]);
  assert.deepEqual(shapeDifferences([], [1]), []);
  assert.deepEqual(shapeDifferences([1, "a"], [1]), ["$[]: number or string → number"]);
  assert.deepEqual(shapeDifferences(null, {}), ["$: null → object"]);
  assert.deepEqual(shapeDifferences({ "a b": 1 }, {}), ['$["a b"]: missing']);
});

test("bounds depth, number of values and number of differences", () => {
  let [deep, other]: unknown[] = [1, "1"];
  for (let i = 0; i < 100; i++) [deep, other] = [[deep], [other]];
  assert.deepEqual(shapeDifferences(deep, other), []);
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`f${i}`, i]));
  assert.equal(shapeDifferences(many, {}).length, 10);
  const long = Array.from({ length: 100_000 }, () => 1);
  assert.deepEqual(shapeDifferences([...long, "x"], long), []);
});
