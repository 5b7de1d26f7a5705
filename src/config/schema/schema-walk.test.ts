import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { knownKeys, schemaAt } from "./schema-walk.ts";

const schema = z.strictObject({
  list: z.array(z.strictObject({ a: z.string() })).default([]),
  named: z.record(z.string(), z.strictObject({ b: z.int() })).optional(),
  either: z.union([z.string(), z.strictObject({ c: z.int() }), z.strictObject({ d: z.int() })]),
  changed: z.strictObject({ e: z.int() }).transform(({ e }) => e),
  again: z.lazy(() => z.strictObject({ f: z.int() }).nullable().readonly()),
});

const places: [name: string, path: (string | number)[], keys: string[]][] = [
  ["the whole", [], ["list", "named", "either", "changed", "again"]],
  ["an element of a list", ["list", 3], ["a"]],
  ["an entry of a record", ["named", "any"], ["b"]],
  ["every branch of a union", ["either"], ["c", "d"]],
  ["what is transformed", ["changed"], ["e"]],
  ["what is found later, nullable and read-only", ["again"], ["f"]],
  ["nothing below a text", ["list", 0, "a"], []],
  ["nothing where nothing is", ["none", "deeper"], []],
  ["nothing by the name of an object's own member", ["constructor"], []],
];
for (const [name, path, keys] of places) {
  test(`knows the keys of ${name}`, () => assert.deepEqual(knownKeys(schemaAt(schema, path)), keys));
}
