import assert from "node:assert/strict";
import { test } from "node:test";
import { RE2JS } from "@bufbuild/re2";
import fc from "fast-check";
import { cpuMs } from "../../../test/support/cpu-time.ts";
import { createBudget } from "./budget.ts";
import { compileComputedRegex, compileRegex } from "./regex.ts";

const matching = [
  { pattern: "", text: "x", matches: true },
  { pattern: "b", text: "abc", matches: true },
  { pattern: "^b", text: "abc", matches: false },
  { pattern: "c$", text: "abc", matches: true },
  { pattern: "(?i)ABC", text: "xabcx", matches: true },
  { pattern: "^a.c$", text: "a\nc", matches: false },
  { pattern: "(?s)^a.c$", text: "a\nc", matches: true },
  { pattern: "(?m)^b$", text: "a\nb\nc", matches: true },
  { pattern: "\\bfoo\\b", text: "a foo b", matches: true },
  { pattern: "\\bfoo\\b", text: "afoob", matches: false },
  { pattern: "^.$", text: "😀", matches: true },
  { pattern: "^\\p{L}+$", text: "Grüße", matches: true },
  { pattern: "a{2,3}$", text: "ba", matches: false },
];
for (const { pattern, text, matches } of matching) {
  test(`/${pattern}/ ${matches ? "matches" : "does not match"} ${JSON.stringify(text)}`, () => {
    assert.equal(compileRegex(pattern).test(text, createBudget()), matches);
  });
}

const replacing = [
  { pattern: "a", text: "banana", replacement: "o", result: "bonono" },
  { pattern: "(\\w)(\\d)", text: "a1 b2", replacement: "$2$1", result: "1a 2b" },
  { pattern: "(?P<x>a)|b", text: "ab", replacement: `[\${x}]`, result: "[a][]" },
  { pattern: "a|ab", text: "ab", replacement: "X", result: "Xb" },
  { pattern: "a*", text: "baac", replacement: "-", result: "-b-c-" },
  { pattern: "", text: "ab", replacement: "-", result: "-a-b-" },
  { pattern: "^a", text: "aaa", replacement: "x", result: "xaa" },
  { pattern: ".", text: "😀é", replacement: "<$0>", result: "<😀><é>" },
  { pattern: "x", text: "abc", replacement: "y", result: "abc" },
  { pattern: "a", text: "a", replacement: `$$ $9 \${none} $`, result: "$   $" },
  { pattern: "<.+?>", text: "<a><b>", replacement: "", result: "" },
  { pattern: "<.+>", text: "<a>t<b>", replacement: "", result: "" },
];
for (const { pattern, text, replacement, result } of replacing) {
  test(`replaces /${pattern}/ in ${text} by ${replacement}`, () => {
    assert.equal(compileRegex(pattern).replaceAll(text, replacement, createBudget()), result);
  });
}

/** Patterns whose every match has a letter, so that JavaScript's engine and RE2's agree on what a match is. */
const randomPattern = fc.letrec<{ sequence: string }>((tie) => ({
  sequence: fc
    .tuple(
      fc.constantFrom("a", "b", "c"),
      fc.array(
        fc.tuple(
          fc.oneof(
            { maxDepth: 3 },
            fc.constantFrom("a", "b", "c", ".", "[ab]", "[^a]", "\\b", "\\d"),
            fc.tuple(tie("sequence"), tie("sequence")).map(([left, right]) => `(${left}|${right})`),
          ),
          fc.constantFrom("", "", "*", "+", "?", "{1,3}", "*?", "+?"),
        ),
        { maxLength: 4 },
      ),
    )
    .map(
      ([first, rest]) => first + rest.map(([atom, quantifier]) => atom + (atom === "\\b" ? "" : quantifier)).join(""),
    ),
})).sequence;
const randomText = fc
  .array(fc.constantFrom("a", "b", "c", "1", " ", "\n", "é", "😀"), { maxLength: 20 })
  .map((parts) => parts.join(""));

test("agrees with the library's own engine on whether a pattern matches", () => {
  fc.assert(
    fc.property(
      randomPattern,
      fc.constantFrom("", "^", "(?i)", "(?m)^"),
      fc.constantFrom("", "$"),
      randomText,
      (core, head, tail, text) => {
        const pattern = `${head}${core}${tail}`;
        assert.equal(compileRegex(pattern).test(text, createBudget()), RE2JS.compile(pattern).test(text), pattern);
      },
    ),
    { numRuns: 500 },
  );
});

test("agrees with JavaScript on what is replaced", () => {
  fc.assert(
    fc.property(randomPattern, randomText, (pattern, text) => {
      const expected = text.replace(new RegExp(pattern, "gu"), "<$&>");
      assert.equal(compileRegex(pattern).replaceAll(text, "<$0>", createBudget()), expected, pattern);
    }),
    { numRuns: 500 },
  );
});

test("patterns that explode elsewhere take linear time [E2]", () => {
  const text = `${"a".repeat(30)}!`;
  for (const pattern of ["(a+)+$", "(a|aa)+$", "(a*)*b", "([a-z]+)*=", "(a?){30}a{30}b"]) {
    const regex = compileRegex(pattern);
    const start = cpuMs();
    assert.equal(regex.test(text, createBudget()), false, pattern);
    assert.ok(cpuMs() - start < 50, `${pattern} took ${cpuMs() - start} ms`);
  }
});

test("a computed pattern is bounded, and one that does not compile is an error", () => {
  assert.throws(() => compileComputedRegex("a".repeat(513), createBudget()), /at most 512/);
  assert.throws(() => compileComputedRegex("(", createBudget()), /missing closing/);
  assert.throws(() => compileComputedRegex("(a{1000}){1000}", createBudget()), /repeat/);
});
