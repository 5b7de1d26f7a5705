import assert from "node:assert/strict";
import { test } from "node:test";
import { exceededLimit } from "./parse-cost.ts";

/** The largest limit that the text still exceeds. */
const tokensOf = (text: string): number => {
  let count = 0;
  while (exceededLimit(text, count, Number.POSITIVE_INFINITY) !== undefined) count += 1;
  return count;
};

const texts: [text: string, tokens: number][] = [
  ["", 0],
  ["1", 0],
  ["[1,2,3]", 3],
  ['{"a":1}', 3],
  ['{"a":[{},{}],"b":2}', 10],
  ['"[,:{"', 0],
  ['["\\"[,\\\\",","]', 2],
  [`["${"x".repeat(100)}\\"${"[".repeat(100)}",1]`, 2],
  [`["${"x".repeat(100)}\\\\",1]`, 2],
  ['["without an end, :', 1],
];
for (const [text, tokens] of texts)
  test(`${text.slice(0, 30)} has ${tokens} tokens`, () => assert.equal(tokensOf(text), tokens));
