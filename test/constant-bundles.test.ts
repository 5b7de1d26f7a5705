/** Top-level variables of bundles become constants if nothing assigns them, and the lines stay. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const { withConstants } = (await import(
  pathToFileURL(join(process.cwd(), "scripts", "constant-bundles.mjs")).href
)) as { withConstants(text: string, format: string): string };

const CASES: readonly (readonly [what: string, text: string, expected: string])[] = [
  ["a table", "var table = [1];", "const table = [1];"],
  ["a table whose elements change", "var table = [1];\ntable[0] = 2;", "const table = [1];\ntable[0] = 2;"],
  ["a variable without a value", "var a;\na = 1;", "var a;\na = 1;"],
  ["a counter", "var a = 1;\nfunction next() { return a++; }", "var a = 1;\nfunction next() { return a++; }"],
  ["an assignment in a function", "var a = 1;\nfunction f() { a = 2; }", "var a = 1;\nfunction f() { a = 2; }"],
  ["an assignment with an operator", "var a;\nvar b = 1;\nb ??= 2;", "var a;\nvar b = 1;\nb ??= 2;"],
  ["a destructuring assignment", "var a = 1, b = 2;\n[{ x: a }] = [];", "var a = 1; const b = 2;\n[{ x: a }] = [];"],
  ["the variable of a loop", "var a = 1;\nfor (a of []);", "var a = 1;\nfor (a of []);"],
  ["two declarations", "var a = 1;\nvar a = 2;", "var a = 1;\nvar a = 2;"],
  ["several variables", "var a = 1, b, c = {\n  d: 1\n};", "const a = 1; var b; const c = {\n  d: 1\n};"],
  ["variables in functions", "function f() { var a = 1; return a; }", "function f() { var a = 1; return a; }"],
  ["text", "const a = `\nvar b = 1;\n`;", "const a = `\nvar b = 1;\n`;"],
];

for (const [what, text, expected] of CASES)
  test(what, () => {
    assert.equal(withConstants(text, "esm"), expected);
    assert.equal(withConstants(text, "cjs"), expected);
  });

test("a function with the same name", () => {
  const text = "var a = 1;\nfunction a() {}";
  assert.equal(withConstants(text, "cjs"), text);
});
