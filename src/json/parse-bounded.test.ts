import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_DOCUMENT_TOKENS, parseBounded, parseBoundedObject } from "./json.ts";

const MANY = MAX_DOCUMENT_TOKENS + 1;

for (const [name, text] of [
  ["empty objects", `[${"{},".repeat(MANY)}1]`],
  ["numbers", `[${"1,".repeat(MANY)}1]`],
  ["nesting", `${"[".repeat(MANY)}${"]".repeat(MANY)}`],
  ["names", `{${Array.from({ length: MANY }, (_, i) => `"k${i}":1`).join()}}`],
] as const) {
  test(`a document of very many values is rejected before it is parsed: ${name}`, () => {
    assert.throws(() => parseBounded(text), { message: "has more than 50000 values and names" });
  });
}

test("a long string is one value, however many brackets it contains", () => {
  const value = { text: "[{,:".repeat(MANY) };
  assert.deepEqual(parseBounded(JSON.stringify(value)), value);
});

test("text that is not JSON is reported as such", () => {
  for (const text of ["", "{", "[1,]", "undefined"])
    assert.throws(() => parseBounded(text), { message: "is not JSON" }, text);
});

test("only objects are parsed as an object", () => {
  assert.deepEqual(parseBoundedObject(Buffer.from('{"a":1}')), { a: 1 });
  for (const text of ["[]", "null", "1", '"a"', "{", "", "[".repeat(MANY)])
    assert.equal(parseBoundedObject(Buffer.from(text)), undefined, text.slice(0, 10));
});
