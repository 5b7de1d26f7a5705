import assert from "node:assert/strict";
import { test } from "node:test";
import { safeJson, safeJsonInSteps, safeJsonPieces } from "./safe-json.ts";

test("every control character is escaped, and the value is the same [P6] [G3]", () => {
  const text = Array.from({ length: 0x2100 }, (_, code) => String.fromCharCode(code)).join("");
  const json = safeJson({ [text]: [text, "é人😀"] });
  assert.doesNotMatch(json, /[\p{Cc}\p{Zl}\p{Zp}]/u);
  assert.deepEqual(JSON.parse(json), { [text]: [text, "é人😀"] });
  assert.equal(safeJson({ a: [1, "x"] }, 2), JSON.stringify({ a: [1, "x"] }, null, 2));
});

test("in steps or at once, the result is the same", () => {
  for (const value of [
    {},
    { a: 1, b: undefined, c: [1, { d: "x\u0085\n" }], "\u2028": {} },
    { list: [], object: {} },
    { l: [undefined, null, [], {}, [1, [2]]] },
  ])
    assert.equal(wholeOf(safeJsonInSteps(value)), safeJson(value, 2));
});

test("pieces of lists are the JSON of the object, and each ends after an item", () => {
  const lists = {
    "a\u2028": [],
    names: ["x\u0085", "é"],
    rows: Array.from({ length: 300 }, (_, i) => Array(500).fill(i)),
  };
  const pieces = safeJsonPieces(lists);
  assert.equal(pieces.join(""), safeJson(lists));
  assert.ok(pieces.length > 3);
  for (const piece of pieces.slice(0, -1)) assert.match(piece, /\]$/);
  assert.deepEqual(safeJsonPieces({}), ["{}"]);
});

function wholeOf(steps: Generator<undefined, string, undefined>): string {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}
