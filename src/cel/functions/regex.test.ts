import assert from "node:assert/strict";
import { test } from "node:test";
import { RE2JS } from "@bufbuild/re2";
import fc from "fast-check";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { createBudget } from "./budget.ts";
import { compileComputedRegex, compileRegex, type Regex } from "./regex.ts";

const PATTERN = peerInput("file/pattern");

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
    assert.equal(compileRegex(PATTERN, pattern).test(text, createBudget()), matches);
    assert.equal(withAutomaton(pattern).test(text, createBudget()), matches, "by its automaton");
  });
}

/** A pattern that has read enough for its table to be made. */
function withAutomaton(pattern: string): Regex {
  const regex = compileRegex(PATTERN, pattern);
  regex.test("1 é\n".repeat(200), createBudget());
  return regex;
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
    assert.equal(compileRegex(PATTERN, pattern).replaceAll(text, replacement, createBudget()), result);
    assert.equal(withAutomaton(pattern).replaceAll(text, replacement, createBudget()), result, "by its automaton");
  });
}

/** What the matcher reads of a compiled pattern, with the numbers of instructions and conditions that it copies. */
const programs = [
  {
    pattern: "^a(?P<n>b|c)*?\\b$",
    head: { prefix: "", prefixComplete: false, groups: { n: 1 }, start: 1, numCap: 4, startCond: 4 },
    program: [
      "fail",
      "2 if 4",
      "a: 6",
      "4, position 2",
      "bc: 5",
      "6, position 3",
      "7 or 3",
      "8 if 16",
      "9 if 8",
      "match",
    ],
  },
  {
    pattern: "(?m)^.\\B$|(?:)",
    head: { prefix: "", prefixComplete: false, groups: {}, start: 6, numCap: 2, startCond: 0 },
    program: ["fail", "2 if 1", "abcé😀: 3", "4 if 32", "7 if 2", "7", "1 or 5", "match"],
  },
  {
    pattern: "é",
    head: { prefix: "é", prefixComplete: true, groups: {}, start: 1, numCap: 2, startCond: 0 },
    program: ["fail", "é: 2", "match"],
  },
];
for (const { pattern, head, program } of programs)
  test(`the library compiles /${pattern}/ to the instructions that the matcher runs`, () => {
    const { prog, prefix, prefixComplete, namedGroups } = RE2JS.compile(pattern).re2();
    const { start, numCap } = prog;
    const groups = Object.fromEntries(namedGroups);
    assert.deepEqual({ prefix, prefixComplete, groups, start, numCap, startCond: prog.startCond() }, head);
    const instructions = Array.from({ length: prog.numInst() }, (_, pc) => prog.getInst(pc));
    assert.deepEqual(instructions.map(instructionText), program);
  });

function instructionText(instruction: ReturnType<ReturnType<RE2JS["re2"]>["prog"]["getInst"]>): string {
  const { op, out, arg } = instruction;
  if (op === 1) return `${out} or ${arg}`;
  if (op === 3) return `${out}, position ${arg}`;
  if (op === 4) return `${out} if ${arg}`;
  if (op === 5) return "fail";
  if (op === 6) return "match";
  if (op === 7) return `${out}`;
  const taken = [..."abcé😀\n"].filter((rune) => instruction.matchRune(rune.codePointAt(0) as number));
  return `${taken.join("")}: ${out}`;
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
        const matches = RE2JS.compile(pattern).test(text);
        assert.equal(compileRegex(PATTERN, pattern).test(text, createBudget()), matches, pattern);
        assert.equal(withAutomaton(pattern).test(text, createBudget()), matches, `${pattern} by its automaton`);
      },
    ),
    { numRuns: 500 },
  );
});

test("agrees with JavaScript on what is replaced", () => {
  fc.assert(
    fc.property(randomPattern, randomText, (pattern, text) => {
      const expected = text.replace(new RegExp(pattern, "gu"), "<$&>");
      assert.equal(compileRegex(PATTERN, pattern).replaceAll(text, "<$0>", createBudget()), expected, pattern);
      assert.equal(
        withAutomaton(pattern).replaceAll(text, "<$0>", createBudget()),
        expected,
        `${pattern} by its automaton`,
      );
    }),
    { numRuns: 500 },
  );
});

test("patterns that explode elsewhere take linear time [E2]", () => {
  const text = `${"a".repeat(30)}!`;
  for (const pattern of ["(a+)+$", "(a|aa)+$", "(a*)*b", "([a-z]+)*=", "(a?){30}a{30}b"]) {
    const regex = compileRegex(PATTERN, pattern);
    assertCpuBelow(50, () => assert.equal(regex.test(text, createBudget()), false, pattern), pattern);
  }
});

test("a computed pattern is bounded, and one that does not compile is an error", () => {
  assert.throws(() => compileComputedRegex("a".repeat(513), createBudget()), /at most 512/);
  assert.throws(() => compileComputedRegex("(", createBudget()), /missing closing/);
  assert.throws(() => compileComputedRegex("(a{1000}){1000}", createBudget()), /repeat/);
});

test("a long text costs a pattern a few units per hundred characters, also one that explodes elsewhere", () => {
  const texts = ["a".repeat(200_000), `{"a":`.repeat(40_000), "Grüße, 漢字 ".repeat(20_000)];
  for (const pattern of ["(a+)+$", "(a|aa)+$", "([a-z]+)*=", "\\b\\d{3}-\\d{2}\\b", "(?i)secret|password"]) {
    const regex = compileRegex(PATTERN, pattern);
    for (const text of texts) {
      const budget = { left: 1_000_000 };
      regex.test(text, budget);
      assert.ok(1_000_000 - budget.left < text.length / 4, `${pattern}: ${1_000_000 - budget.left}`);
    }
  }
});

test("a character beyond ASCII costs a pattern as much as six more characters", () => {
  const cost = (text: string): number => {
    const regex = compileRegex(PATTERN, "[0-9]x");
    regex.test(text, createBudget());
    const budget = { left: 1_000_000 };
    regex.test(text, budget);
    return 1_000_000 - budget.left;
  };
  assert.equal(Math.round(cost("a".repeat(48_000))), 2_001);
  assert.equal(Math.round(cost("é".repeat(48_000))), 14_001);
  assert.equal(Math.round(cost("a😀".repeat(16_000))), 6_001);
});

test("a pattern with too many states is read without a table, and pays for it", () => {
  const regex = compileRegex(PATTERN, "(a|b)*a(a|b){14}c$");
  let seed = 1;
  let text = "";
  for (let i = 0; i < 20_000; i++) {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    text += (seed & 0x10000) === 0 ? "a" : "b";
  }
  assert.equal(regex.test(`${text}c`, { left: 1e9 }), RE2JS.compile("a(a|b){14}c$").test(`${text}c`));
  assert.throws(() => regex.test(text.repeat(50), createBudget()), /costs too much/);
});

test("a pattern with many states gets its table from short texts", () => {
  const regex = compileRegex(PATTERN, "^/x/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$");
  const path = "/x/123e4567-e89b-12d3-a456-426614174000";
  const costOf = (text: string): number => {
    const budget = createBudget();
    assert.equal(regex.test(text, budget), text === path);
    return createBudget().left - budget.left;
  };
  assert.ok(costOf(path) > 50);
  for (let i = 0; i < 100; i++) costOf(path);
  assert.ok(costOf(path) < 5, `${costOf(path)}`);
  costOf(`${path}0`);
});
