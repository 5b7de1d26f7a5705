import assert from "node:assert/strict";
import { test } from "node:test";
import { isHeaderName, lowerHeaderName } from "./header-names.ts";

for (const [text, lower] of [
  ["content-type", "content-type"],
  ["Content-Type", "content-type"],
  ["CONTENT-type", "content-type"],
  ["X-Own_1", "x-own_1"],
  ["", undefined],
  ["content-type ", undefined],
  ["content type", undefined],
  ["a\r\nb", undefined],
  ["\u212a", undefined],
] as const)
  test(`${JSON.stringify(text)} ${lower === undefined ? "is not a header name" : `is ${lower}`}`, () => {
    assert.equal(lowerHeaderName(text), lower);
    assert.equal(isHeaderName(text), lower !== undefined);
  });
