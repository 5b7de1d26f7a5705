import assert from "node:assert/strict";
import { test } from "node:test";
import { putMember } from "./json.ts";

test("an object can have members with inherited names, as with JSON.parse", () => {
  const names = Object.getOwnPropertyNames(Object.prototype);
  const object: Record<string, unknown> = {};
  for (const name of names) putMember(object, name, { of: name });
  assert.equal(JSON.stringify(object), JSON.stringify(Object.fromEntries(names.map((name) => [name, { of: name }]))));
  assert.equal(Object.getPrototypeOf(object), Object.prototype);
});
