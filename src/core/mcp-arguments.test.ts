import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { compileExpression } from "../cel/expression.ts";
import { plainAttributes } from "../cel/values/attribute-source.ts";
import { fromCel } from "../cel/values/output.ts";
import { toCel } from "../cel/values/values.ts";
import { withArguments } from "./mcp-arguments.ts";

const read = (attributes: object): unknown => (attributes as { arguments?: unknown }).arguments;
const shown = (attributes: object): unknown => fromCel(toCel(read(attributes)));

test("arguments are readable by name, empty if absent, and not enumerable", () => {
  const attributes = withArguments({ name: "echo", target: "a" }, { message: "m" });
  assert.deepEqual(shown(attributes), { message: "m" });
  assert.deepEqual(shown(withArguments({}, undefined)), {});
  assert.equal(Object.hasOwn(attributes, "arguments"), true);
  assert.equal(JSON.stringify(attributes), '{"name":"echo","target":"a"}');
  assert.deepEqual({ ...attributes }, { name: "echo", target: "a" });
});

test("reading oversized arguments fails every time", () => {
  const attributes = withArguments({}, { text: "x".repeat(64 * 1024 + 1) });
  for (const _ of [1, 2]) assert.throws(() => read(attributes), /longer than/);
});

test("arguments are readable up to each limit, and not beyond it", () => {
  const nested = (levels: number): unknown => (levels === 0 ? "m" : { a: nested(levels - 1) });
  const cases: readonly (readonly [within: unknown, beyond: unknown, problem: RegExp])[] = [
    [{ a: "x".repeat(64 * 1024 - 1) }, { a: "x".repeat(64 * 1024) }, /longer than 65536 characters/],
    [{ ["k".repeat(64 * 1024)]: 1 }, { ["k".repeat(64 * 1024 + 1)]: 1 }, /longer than 65536 characters/],
    [{ a: new Array(4_998).fill(1) }, { a: new Array(4_999).fill(1) }, /more than 5000 values/],
    [nested(16), nested(17), /deeper than 16 levels/],
  ];
  for (const [within, beyond, problem] of cases) {
    assert.doesNotThrow(() => read(withArguments({}, within)));
    assert.throws(() => read(withArguments({}, beyond)), problem);
  }
});

const SPELLINGS = ["path", "Path", "PATH", "pAth"];

test("no rule can miss or confuse an argument, whatever spelling the server accepts [A26]", () => {
  const key = fc.constantFrom(...SPELLINGS, "other");
  const rules = [
    'mcp.tool.arguments.path == "good"',
    '!has(mcp.tool.arguments.path) || mcp.tool.arguments.path == "good"',
    '!("path" in mcp.tool.arguments) || mcp.tool.arguments["path"] == "good"',
    'default(mcp.tool.arguments.path, "good") == "good"',
    'mcp.tool.arguments.all(k, k != "path" || mcp.tool.arguments[k] == "good")',
    '!has(mcp.tool.arguments.file) || mcp.tool.arguments.file.path == "good"',
    '!has(mcp.tool.arguments.list) || mcp.tool.arguments.list.all(one, default(one.path, "good") == "good")',
    "size(mcp.tool.arguments) < 9 && coalesce(mcp.tool.arguments.path, 'good') == 'good'",
  ].map((source) => compileExpression(source));
  const names = fc.dictionary(key, fc.constantFrom("good", "evil"), { maxKeys: 3, noNullPrototype: true });
  const calls = fc.oneof(
    names.map((file) => ({ args: file, read: file, nested: -1 })),
    names.map((file) => ({ args: { file }, read: file, nested: 5 })),
    names.map((file) => ({ args: { list: [{}, file] }, read: file, nested: 6 })),
  );
  fc.assert(
    fc.property(calls, fc.nat(rules.length - 1), ({ args, read: file, nested }, chosen) => {
      const rule = rules[nested === -1 ? chosen : nested];
      const isAllowed = rule?.evaluate(plainAttributes({ mcp: { tool: withArguments({ name: "t" }, args) } }));
      if (!isAllowed?.ok || isAllowed.value !== true) return;
      if (nested === -1 && (chosen === 5 || chosen === 6)) return;
      // For `all`, a map without the exact key has no such argument, so its keys are compared exactly.
      const isListed = nested === -1 && chosen === 4;
      const spelled = Object.entries(file).filter(([name]) => (isListed ? name === "path" : name !== "other"));
      for (const [name, value] of spelled) assert.deepEqual([name, value], ["path", "good"]);
    }),
    { numRuns: 1000, seed: 1 },
  );
});

test("unreadable arguments fail a rule even if it has a default for them", () => {
  const rule = compileExpression("default(mcp.tool.arguments.force, false) == true || true");
  const judged = (args: unknown): unknown => rule.evaluate(plainAttributes({ mcp: { tool: withArguments({}, args) } }));
  assert.deepEqual(judged({}), { ok: true, value: true });
  assert.match(JSON.stringify(judged({ Force: true })), /must be written/);
  assert.match(JSON.stringify(judged({ force: true, text: "x".repeat(70_000) })), /longer than/);
});

test("all calls share one getter, because a getter per call would outlive its request", () => {
  const getter = (args: unknown) => Object.getOwnPropertyDescriptor(withArguments({}, args), "arguments")?.get;
  assert.equal(getter({ a: 1 }), getter({ b: 2 }));
});

/** As JSON that a client sends. Servers that read integers exactly may use another value than `JSON.parse` returns. */
const NUMBERS: readonly [json: string, isExact: boolean][] = [
  ["0", true],
  ["-1.5", true],
  ["0.1", true],
  ["1e3", true],
  ["-0", true],
  ["123.25", true],
  ["5e-324", true],
  ['"9007199254740993"', true],
  ["9007199254740991", true],
  ["-9007199254740991", true],
  ["9007199254740992", false],
  ["9007199254740993", false],
  ["-9007199254740993", false],
  ["9007199254740993.0", false],
  ["1e21", false],
  ["123456789012345678901234567890", false],
  ["1e400", false],
  ["-1e400", false],
];
/** Each rule reads the number where its call has it, and allows any value. */
const READS: readonly [args: (json: string) => string, rules: readonly string[]][] = [
  [
    (json) => `{"n":${json}}`,
    [
      "A.n != 7",
      "has(A.n)",
      '"n" in A',
      'A["n"] != 7',
      "default(A.n, 0) != 7",
      "A.n == 7 || true",
      "A.all(k, A[k] != 7)",
    ],
  ],
  [(json) => `{"a":{"n":${json}}}`, ["A.a.n != 7", "has(A.a.n)", "default(A.a.n, 0) != 7", "A.a.all(k, A.a[k] != 7)"]],
  [(json) => `{"a":[1,${json}]}`, ["A.a[1] != 7", "A.a.all(n, n != 7)", "!(7 in A.a)", "!A.a.exists(n, n == 7)"]],
  [
    (json) => `{"a":[{"n":${json}}]}`,
    ["A.a[0].n != 7", "A.a.all(one, one.n != 7)", "A.a.all(one, default(one.n, 0) != 7)"],
  ],
];

for (const [json, isExact] of NUMBERS)
  test(`rules ${isExact ? "read" : "do not read"} the number ${json}`, () => {
    for (const [args, rules] of READS)
      for (const rule of rules) {
        const tool = withArguments({ name: "t" }, JSON.parse(args(json)));
        const source = rule.replaceAll("A", "mcp.tool.arguments");
        const result = compileExpression(source).evaluate(plainAttributes({ mcp: { tool } }));
        const what = `${source} with ${args(json)}`;
        if (isExact) assert.deepEqual(result, { ok: true, value: true }, what);
        else assert.match(JSON.stringify(result), /beyond 2\^53/, what);
      }
  });

test("only rules that read a rounded number fail", () => {
  const rule = compileExpression("mcp.tool.arguments.id == 5 && mcp.tool.arguments.other.id == 5");
  const args = JSON.parse('{"id":5,"other":{"id":5,"n":9007199254740993},"n":9007199254740993}') as object;
  const tool = withArguments({ name: "t" }, args);
  assert.deepEqual(rule.evaluate(plainAttributes({ mcp: { tool } })), { ok: true, value: true });
});
