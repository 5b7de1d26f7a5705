import assert from "node:assert/strict";
import { test } from "node:test";
import {
  decodeCursor,
  encodeCursor,
  lowestVersion,
  mergeCapabilities,
  mergeInstructions,
  routable,
} from "./merge-responses.ts";

test("capabilities are the union of all servers", () => {
  assert.deepEqual(
    {
      ...mergeCapabilities([
        { tools: { listChanged: false }, logging: {} },
        { tools: { listChanged: true, x: 1 }, resources: { subscribe: true } },
      ]),
    },
    {
      tools: Object.assign(Object.create(null), { listChanged: true, x: 1 }),
      logging: {},
      resources: { subscribe: true },
    },
  );
});

test("what cannot be routed to one of several servers is not offered", () => {
  const extensions = { "io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/ui": {} };
  assert.deepEqual(routable({ tools: {}, tasks: { list: {} }, extensions }), {
    tools: {},
    extensions: { "io.modelcontextprotocol/ui": {} },
  });
  assert.deepEqual(routable({ tools: {} }), { tools: {} });
});

test("keys with a meaning in JavaScript are plain keys", () => {
  const merged = mergeCapabilities([JSON.parse('{"__proto__":{"admin":true}}'), {}]);
  assert.equal((merged as { admin?: unknown }).admin, undefined);
});

test("instructions stand in blocks, with those that are missing", () => {
  const about = { protocolVersion: "", capabilities: {}, serverInfo: {}, instructions: "Use a." };
  assert.equal(
    mergeInstructions([{ target: "a", about }], new Map([["b", "exited with code 1"]])),
    "[a]\nUse a.\n\n[b]\nNot available: exited with code 1",
  );
  assert.equal(mergeInstructions([], new Map()), undefined);
});

test("the lowest version is the oldest", () => {
  assert.equal(lowestVersion(["2025-11-25", "2025-03-26", "2025-06-18"]), "2025-03-26");
});

test("a cursor is decoded, and foreign cursors are rejected", () => {
  assert.deepEqual(decodeCursor(encodeCursor({ a: "1", b: "é" })), { a: "1", b: "é" });
  for (const text of [
    "",
    "x",
    "bnVsbA",
    Buffer.from("[1]").toString("base64url"),
    Buffer.from('{"a":1}').toString("base64url"),
    7,
    undefined,
  ]) {
    assert.equal(decodeCursor(text), undefined);
  }
});
