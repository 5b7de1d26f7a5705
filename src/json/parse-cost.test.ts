import assert from "node:assert/strict";
import { test } from "node:test";
import { InputError, peerInput } from "../base/peer-inputs.ts";
import { finish } from "../base/sliced-work.ts";
import { countWithin, exceededLimit, exceededLimitInSteps, MAX_NUMBER_CHARS } from "./parse-cost.ts";
import { readJson } from "./read-json.ts";

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

const LONGEST = "1".repeat(MAX_NUMBER_CHARS);
const numbers: [name: string, text: string, isTooLong: boolean][] = [
  ["a number of the longest kind", LONGEST, false],
  ["a longer number", `${LONGEST}1`, true],
  ["a longer number in a list", `[1, -${LONGEST}1]`, true],
  ["a longer fraction", `{"a":0.${LONGEST}1}`, true],
  ["a longer exponent", `{"a":1e${LONGEST}1}`, true],
  ["numbers beside each other", `[${LONGEST},${LONGEST}]`, false],
  ["digits in a text", `{"a":"${LONGEST}1"}`, false],
  ["digits in a text with quotes", `["\\"${LONGEST}1\\""]`, false],
];
for (const [name, text, isTooLong] of numbers)
  test(`${isTooLong ? "too long" : "not too long"}: ${name}`, () => {
    const input = peerInput("client/llm-tool-arguments");
    const expected = isTooLong ? "number" : undefined;
    assert.equal(exceededLimit(text, input.maxItems, input.maxDepth), expected);
    assert.equal(finish(exceededLimitInSteps(input, Buffer.from(text))), expected);
    if (isTooLong)
      assert.throws(
        () => readJson(input, text),
        (error) => error instanceof InputError && /digits$/.test(error.message),
      );
    else assert.doesNotThrow(() => readJson(input, text));
  });

test("one pass counts the tokens up to the limits", () => {
  for (const [text, tokens] of texts) assert.equal(countWithin(text, 1_000, 1_000), tokens, text);
  assert.equal(countWithin("[1,2,3]", 2, 10), "items");
  assert.equal(countWithin("[[[]]]", 10, 2), "depth");
});
