/**
 * The UI's pure functions: reading YAML paths by indentation, differences, metrics, and making text visible.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import { bytesText, dollarText, durationText, shortText } from "../../src/base/format.ts";
import { canaryOf } from "../../ui/src/data/canary.ts";
import { lineDiff } from "../../ui/src/pages/config/line-diff.ts";
import { docOf } from "../../ui/src/pages/config/schema-doc.ts";
import { pathAt } from "../../ui/src/pages/config/yaml-path.ts";
import { amountText, stateOfKey } from "../../ui/src/pages/limits/budget-texts.ts";
import { definitionText } from "../../ui/src/pages/mcp/definition-text.ts";
import { differences } from "../../ui/src/pages/requests/differences.ts";
import { taskRows } from "../../ui/src/pages/runtime/task-rows.ts";
import { ticksOf, timeTicks } from "../../ui/src/parts/chart-scale.ts";
import { axisDurationText, visible } from "../../ui/src/parts/format.ts";
import { blocksOf } from "../../ui/src/parts/markdown-blocks.ts";
import { sortedRows } from "../../ui/src/parts/sort-rows.ts";
import { toYaml } from "../../ui/src/parts/to-yaml.ts";

test("a canary shows its share and results, or why it was withdrawn", () => {
  const counts = { requests: 40, failed: 1, slow: 0 };
  assert.equal(canaryOf({ name: "a" }), undefined);
  assert.deepEqual(canaryOf({ canary: { share: 5, state: "active", ...counts } }), {
    isWithdrawn: false,
    text: "5% of requests · 1 failed of 40",
  });
  assert.match(
    canaryOf({ canary: { when: "true", state: "active", ...counts, slow: 2 } })?.text ?? "",
    /^when true · 1 failed, 2 slow of 40$/,
  );
  assert.deepEqual(
    canaryOf({ canary: { share: 5, state: "withdrawn", at: "now", reason: "3 of 11 requests failed" } }),
    {
      isWithdrawn: true,
      text: "withdrawn at now: 3 of 11 requests failed",
    },
  );
});

test("a tool's definition is lines to read, and nothing in it hides or looks like another field", () => {
  const definition = {
    description: "One.\ntitle: x\u{e0041}\u202e",
    inputSchema: { a: "b\nc" },
    name: "n",
    title: "T",
  };
  assert.equal(
    definitionText(definition),
    'description: One.\n    title: x\\ue0041\\u202e\ninputSchema: {\n  "a": "b\\nc"\n}\ntitle: T',
  );
});

test("amounts and keys are told in words", () => {
  assert.deepEqual(
    [amountText(12_345, "tokens"), amountText(20, "usd"), amountText(0.001234, "usd"), amountText(0, "usd")],
    ["12,345 tokens", "$20.00", "$0.001234", "$0.00"],
  );
  const key = { id: "1", name: "ci", createdAt: "2026-01-01T00:00:00.000Z" };
  assert.deepEqual(stateOfKey(key), { level: "ok", text: "active" });
  assert.equal(stateOfKey({ ...key, expired: true, expiresAt: "2026-01-01" }).text, "expired 2026-01-01");
  assert.equal(stateOfKey({ ...key, budget: { cost: 5, per: "day" }, spent: 5 }).text, "budget exhausted");
  assert.equal(stateOfKey({ ...key, budget: { cost: 5, per: "day" }, spent: 4 }).level, "ok");
});

const yaml = `config:
  logging: { level: info }
routes:
  - name: a
    policies:
      cors:
        allowOrigins:
          - "*"
  - name: b
gateways:
  default:
    port: 1
lists:
- one: 1
  two: 2`.split("\n");

for (const [line, path] of [
  [0, "config"],
  [1, "config.logging"],
  [3, "routes.*.name"],
  [6, "routes.*.policies.cors.allowOrigins"],
  [7, "routes.*.policies.cors.allowOrigins"],
  [8, "routes.*.name"],
  [11, "gateways.default.port"],
  [14, "lists.*.two"],
] as const)
  test(`line ${line + 1} of the YAML belongs to ${path}`, () => {
    assert.equal(pathAt(yaml, line).join("."), path);
  });

test("a line difference keeps what is the same", () => {
  const kinds = lineDiff("a\nb\nc\nd", "a\nx\nc\nd\ne").map(({ kind, text }) => `${kind[0]}${text}`);
  assert.deepEqual(kinds, ["sa", "rb", "ax", "sc", "sd", "ae"]);
  assert.deepEqual(
    lineDiff("a", "a").map(({ kind }) => kind),
    ["same"],
  );
});

test("differences of snapshots name the leaf", () => {
  assert.deepEqual(differences({ a: { b: 1, c: 2 } }, { a: { b: 1, d: [] } }), [
    { path: "a.c", before: "2", after: undefined },
    { path: "a.d", before: undefined, after: "[]" },
  ]);
  assert.deepEqual(differences({ a: 1 }, { a: 1 }), []);
});

test("the ticks of a value axis are round and cover the largest value", () => {
  assert.deepEqual(ticksOf(0), [0, 1]);
  assert.deepEqual(ticksOf(7), [0, 2, 4, 6, 8]);
  assert.deepEqual(ticksOf(100), [0, 25, 50, 75, 100]);
  assert.deepEqual(ticksOf(10), [0, 2.5, 5, 7.5, 10]);
  for (let max = 1; max <= 300; max++) {
    const ticks = ticksOf(max, true);
    assert.ok(ticks.every(Number.isInteger) && (ticks.at(-1) ?? 0) >= max && ticks.length <= 6, `${max}: ${ticks}`);
  }
  assert.deepEqual(ticksOf(1, true), [0, 1]);
  assert.deepEqual(ticksOf(10, true), [0, 5, 10]);
  assert.deepEqual(ticksOf(100, true), [0, 25, 50, 75, 100]);
  assert.deepEqual(ticksOf(0.0031), [0, 0.001, 0.002, 0.003, 0.004]);
});

test("rows are sorted by a column: numbers from the largest, names from the first, unknown values last", () => {
  const rows = [
    { name: "b10", ms: 3 },
    { name: "b9", ms: null },
    { name: "a", ms: 7 },
  ];
  const columns = [
    { title: "Name", kind: "text" as const, value: (row: (typeof rows)[number]) => row.name },
    { title: "p95", kind: "number" as const, value: (row: (typeof rows)[number]) => row.ms },
  ];
  const names = (title: string, isReversed: boolean): string =>
    sortedRows(rows, columns, { title, isReversed })
      .map(({ name }) => name)
      .join(" ");
  assert.equal(names("Name", false), "a b9 b10");
  assert.equal(names("Name", true), "b10 b9 a");
  assert.equal(names("p95", false), "a b10 b9");
  assert.equal(names("p95", true), "b10 a b9");
  assert.equal(names("other", false), "b10 b9 a");
});

test("the labels of a time axis fit, and are at round times", () => {
  const day = Date.UTC(2026, 10, 1);
  const days = Array.from({ length: 30 }, (_unused, i) => day + i * 86_400_000);
  const ticks = timeTicks(days, 86_400, 6);
  assert.ok(ticks.length >= 4 && ticks.length <= 7, JSON.stringify(ticks));
  assert.match(ticks[0]?.text ?? "", /^Nov \d+$/);
  const slots = Array.from({ length: 90 }, (_unused, i) => day + 3_000_000 + i * 10_000);
  assert.ok(timeTicks(slots, 10, 4).every(({ text }) => /:(?:00|15|30|45|\d[05])$/.test(text)));
  assert.deepEqual(timeTicks([], 60, 6), []);
});

test("amounts and large numbers are short", () => {
  assert.deepEqual([0, 3, 999, 12_345, 1_250_000].map(shortText), ["0", "3", "999", "12.3k", "1.25M"]);
  assert.deepEqual([0, 0.000_123_4, 0.05, 1.5, 1234.5].map(dollarText), [
    "$0",
    "$0.00012",
    "$0.05",
    "$1.50",
    "$1234.50",
  ]);
  assert.deepEqual([0, 2.5, 250, 2_500, 180_000].map(axisDurationText), ["0", "2.5 ms", "250 ms", "2.5 s", "3 min"]);
});

test("documentation is found through lists, unions and maps", () => {
  const schema = {
    properties: {
      routes: {
        items: { anyOf: [{ type: "string" }, { properties: { name: { type: "string", description: "Its name." } } }] },
      },
      gateways: { additionalProperties: { $ref: "#/$defs/gateway" } },
    },
    $defs: { gateway: { properties: { port: { type: "integer", description: "The port." } } } },
  };
  assert.equal(docOf(schema, ["routes", "*", "name"])?.description, "Its name.");
  assert.equal(docOf(schema, ["gateways", "any", "port"])?.description, "The port.");
  assert.equal(docOf(schema, ["routes", "*", "nothing"]), undefined);
});

test("control characters and direction marks become visible", () => {
  assert.equal(visible("a\u0000b\u001b[31m\u202ec\u007f"), "a\\u0000b\\u001b[31m\\u202ec\\u007f");
  assert.equal(visible("<b>ü 漢</b>"), "<b>ü 漢</b>");
});

test("durations and sizes have a fitting precision", () => {
  assert.deepEqual([0.25, 3.06, 42, 1500, 61_000].map(durationText), ["250 µs", "3.1 ms", "42 ms", "1.50 s", "1 min"]);
  assert.deepEqual([0.9996, 9.97, 999.6, 9_996, 59_960, 3_600_000].map(durationText), [
    "1.0 ms",
    "10 ms",
    "1.00 s",
    "10.0 s",
    "1 min",
    "1 h",
  ]);
  assert.deepEqual([512, 1536, 5 * 1024 * 1024].map(bytesText), ["512 B", "1.5 KiB", "5.0 MiB"]);
});

test("tasks are rows with words, and lists in their details are rows below them", () => {
  const rows = taskRows([
    {
      kind: "mcp session",
      name: "abc",
      ageMs: 5,
      detail: {
        pendingCalls: 0,
        listening: false,
        isOver: true,
        sizeBytes: 2048,
        servers: [{ target: "files", pid: 7 }],
      },
      children: [{ kind: "process", name: "node", ageMs: 4, detail: { pid: 7, rssBytes: 1024 } }],
    },
    { kind: "request", name: "GET /", ageMs: 1, detail: { id: "r1", route: null } },
  ]);
  assert.deepEqual(
    rows.map(({ depth, kind, name, details }) => [depth, kind, name, details]),
    [
      [0, "mcp session", "abc", "pending calls 0 · over · size 2.0 KiB"],
      [1, "server", "files", "pid 7"],
      [1, "process", "node", "pid 7"],
      [0, "request", "GET /", "id r1"],
    ],
  );
  assert.deepEqual([rows[2]?.rssBytes, rows[3]?.requestId], [1024, "r1"]);
});

test("what a model says is taken apart into blocks; a fence that does not end holds the rest", () => {
  const text =
    "# Title\nText\ngoes on\n\n- a\n- b\n\n1. c\n> said\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\n# no heading\n- no item";
  assert.deepEqual(
    blocksOf(text).map(({ kind, lines }) => [kind, lines.length]),
    [
      ["heading", 1],
      ["text", 2],
      ["list", 2],
      ["list", 1],
      ["quote", 1],
      ["table", 3],
      ["code", 2],
    ],
  );
  assert.deepEqual(blocksOf(""), []);
});

test("values are written as YAML that reads as the same value", () => {
  const values: unknown[] = [
    { local: [{ requests: 10, unit: "Minutes", key: "apiKey.user_id" }, { tokens: 5 }], shadow: false },
    { rules: ['"admin" in jwt.roles', { deny: "request.path == '/x'" }], empty: {}, none: [], nothing: null },
    { "a: b": "c # d", word: "true", number: "12", date: "2026-01-01", text: "two\nlines", dash: "- x", hex: "0x10" },
    [
      [1, 2],
      ["a", ["b"]],
    ],
    { long: Array.from({ length: 30 }, (_unused, i) => `value ${i}`), deep: { er: { est: [{ a: [{ b: 1 }] }] } } },
    "plain",
    "~",
    [],
  ];
  for (const value of values) assert.deepEqual(parse(toYaml(value)), value);
  assert.equal(toYaml({ rules: ["a", "b"], set: { x: "1" } }), 'rules: [a, b]\nset:\n  x: "1"');
});
