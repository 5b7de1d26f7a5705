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

test("a rule that reads a number that JSON.parse rounds fails, because servers can read it exactly", () => {
  const rule = compileExpression("has(mcp.tool.arguments.id) && mcp.tool.arguments.id == 9007199254740993");
  const judged = (text: string) =>
    JSON.stringify(rule.evaluate(plainAttributes({ mcp: { tool: withArguments({}, JSON.parse(text)) } })));
  for (const id of ["9007199254740993", "9007199254740992", "-9007199254740993", "1e400", "-1e400", "1e21"])
    assert.match(judged(`{"id":${id}}`), /beyond 2\^53/, id);
  for (const id of ["9007199254740991", "-9007199254740991", "0.1", "5e-324", "123.25", "-0", '"9007199254740993"'])
    assert.equal(judged(`{"id":${id}}`), '{"ok":true,"value":false}', id);
  // Only rules that read the number fail.
  assert.equal(judged('{"other":9007199254740993}'), '{"ok":true,"value":false}');
  const listed = compileExpression("5 in mcp.tool.arguments.ids");
  const args = JSON.parse('{"ids":[5,9007199254740993]}') as object;
  assert.match(
    JSON.stringify(listed.evaluate(plainAttributes({ mcp: { tool: withArguments({}, args) } }))),
    /beyond 2\^53/,
  );
});

test("all calls share one getter, because a getter per call would outlive its request", () => {
  const getter = (args: unknown) => Object.getOwnPropertyDescriptor(withArguments({}, args), "arguments")?.get;
  assert.equal(getter({ a: 1 }), getter({ b: 2 }));
});
