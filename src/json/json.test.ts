import assert from "node:assert/strict";
import { test } from "node:test";
import { putMember } from "./json.ts";

test("an object takes every name that objects inherit, as JSON.parse does", () => {
  const names = Object.getOwnPropertyNames(Object.prototype);
  const object: Record<string, unknown> = {};
  for (const name of names) putMember(object, name, { of: name });
  assert.equal(JSON.stringify(object), JSON.stringify(Object.fromEntries(names.map((name) => [name, { of: name }]))));
  assert.equal(Object.getPrototypeOf(object), Object.prototype);
});
