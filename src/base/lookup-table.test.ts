import assert from "node:assert/strict";
import { test } from "node:test";
import { lookupTable } from "./lookup-table.ts";

test("a table finds its own names only", () => {
  const table = lookupTable({ a: 1 });
  assert.equal(table.a, 1);
  for (const name of Object.getOwnPropertyNames(Object.prototype)) assert.equal(table[name], undefined, name);
});
