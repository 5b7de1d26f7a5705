import assert from "node:assert/strict";
import { test } from "node:test";
import { compileExpression, ExpressionError } from "../expression.ts";
import { MAX_NESTING, MAX_SOURCE_BYTES, scanSource } from "./scan-source.ts";

const accepted = [
  '"((((" == jwt.sub',
  "'it\\'s (' == jwt.sub",
  '"""a " ( " b""" == jwt.sub',
  "r'\\' == jwt.sub",
  'br"\\(" == b"["',
  "jwt.sub == 'a' // a comment with ( and '",
  "1 <= 2 && 2 >= 1 && 1 != 2 && '=' == \"=\"",
  `${"(".repeat(MAX_NESTING)}1${")".repeat(MAX_NESTING)}`,
];
for (const source of accepted) {
  test(`accepts ${source.slice(0, 50)}`, () => {
    assert.doesNotThrow(() => compileExpression(source));
  });
}

const refused = [
  { source: "", problem: /is empty/, line: 1, column: 1 },
  { source: "  \n ", problem: /is empty/, line: 1, column: 1 },
  { source: "jwt.sub == (\n'a'", problem: /"\(" is never closed/, line: 1, column: 12 },
  { source: "jwt.roles[0\n)", problem: /"\[" is closed by "\)"/, line: 2, column: 1 },
  { source: "jwt.sub = 'a'", problem: /single "=" is not an operator: use "==" to compare/, line: 1, column: 9 },
  { source: "jwt.sub)", problem: /"\)" closes nothing/, line: 1, column: 8 },
  { source: "jwt.sub ==\n 'abc", problem: /string is never closed/, line: 2, column: 2 },
  { source: "jwt.sub == 'a\nb'", problem: /string is never closed/, line: 1, column: 12 },
  { source: "(".repeat(100_000), problem: /longer than 16384 bytes/, line: 1, column: 1 },
  { source: `${"(".repeat(65)}1${")".repeat(65)}`, problem: /deeper than 64/, line: 1, column: 65 },
  { source: `${"[".repeat(8000)}`, problem: /deeper than 64/, line: 1, column: 65 },
  { source: `${"!".repeat(65)}true`, problem: /deeper than 64/, line: 1, column: 65 },
  { source: `${"- ".repeat(65)}1`, problem: /deeper than 64/, line: 1, column: 129 },
  { source: `"${"x".repeat(MAX_SOURCE_BYTES)}"`, problem: /longer than/, line: 1, column: 1 },
  { source: `"${"é".repeat(MAX_SOURCE_BYTES / 2)}"`, problem: /longer than/, line: 1, column: 1 },
];
for (const { source, problem, line, column } of refused) {
  test(`refuses ${JSON.stringify(source.slice(0, 30))} because of ${problem} [E4]`, () => {
    assert.throws(
      () => scanSource(source),
      (error) => {
        assert.ok(error instanceof ExpressionError);
        assert.match(error.message, problem);
        assert.deepEqual([error.line, error.column], [line, column]);
        return true;
      },
    );
  });
}

test("what nests without brackets is refused too, and never ends the process [E4]", () => {
  for (const source of [
    `${"jwt.sub?1:".repeat(1500)}1`,
    `1${"+1".repeat(8000)}`,
    `jwt${".a".repeat(8000)}`,
    `coalesce(${"1,".repeat(3900)}1)`,
  ]) {
    assert.throws(() => compileExpression(source), ExpressionError);
  }
});
