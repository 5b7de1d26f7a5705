import assert from "node:assert/strict";
import { test } from "node:test";
import { KnownTools, OTHER_TOOLS } from "./mcp-metrics.ts";

test("a tool keeps its name, whatever became of its calls", () => {
  const tools = new KnownTools();
  for (const succeeded of [true, false, true]) assert.equal(tools.label("echo", succeeded), "echo");
  assert.equal(tools.label("broken", false), "broken");
  assert.equal(tools.label("broken", true), "broken");
});

test("the number of names is bounded", () => {
  const tools = new KnownTools();
  const labels = new Set(Array.from({ length: 1_000 }, (_, i) => tools.label(`tool${i}`, true)));
  assert.equal(labels.size, 101);
  assert.ok(labels.has(OTHER_TOOLS));
  assert.equal(tools.label("tool0", false), "tool0");
});

test("names that are made up leave room for real tools", () => {
  const tools = new KnownTools();
  for (let i = 0; i < 1_000; i++) tools.label(`nonsense${i}`, false);
  assert.equal(tools.label("nonsense999", false), OTHER_TOOLS);
  for (let i = 0; i < 50; i++) assert.equal(tools.label(`tool${i}`, true), `tool${i}`);
  assert.equal(tools.label("tool50", true), OTHER_TOOLS);
});

test("a name that succeeds later makes room for another that has not", () => {
  const tools = new KnownTools();
  for (let i = 0; i < 50; i++) tools.label(`late${i}`, false);
  assert.equal(tools.label("one more", false), OTHER_TOOLS);
  tools.label("late0", true);
  assert.equal(tools.label("one more", false), "one more");
});

test("a name as long as a book has no series", () => {
  assert.equal(new KnownTools().label("x".repeat(129), true), OTHER_TOOLS);
});
