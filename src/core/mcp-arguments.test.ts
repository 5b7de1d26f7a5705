import assert from "node:assert/strict";
import { test } from "node:test";
import { withArguments } from "./mcp-arguments.ts";

const read = (facts: object): unknown => (facts as { arguments?: unknown }).arguments;

test("arguments are read by name, are empty where there are none, and are not listed", () => {
  const facts = withArguments({ name: "echo", target: "a" }, { message: "m" });
  assert.deepEqual(read(facts), { message: "m" });
  assert.deepEqual(read(withArguments({}, undefined)), {});
  assert.equal(Object.hasOwn(facts, "arguments"), true);
  assert.equal(JSON.stringify(facts), '{"name":"echo","target":"a"}');
  assert.deepEqual({ ...facts }, { name: "echo", target: "a" });
});

test("arguments that are too large cannot be read, each time", () => {
  const facts = withArguments({}, { text: "x".repeat(64 * 1024 + 1) });
  for (const _ of [1, 2]) assert.throws(() => read(facts), /longer than/);
});

test("all calls share one getter: a getter of its own would outlive its request", () => {
  const getter = (args: unknown) => Object.getOwnPropertyDescriptor(withArguments({}, args), "arguments")?.get;
  assert.equal(getter({ a: 1 }), getter({ b: 2 }));
});
