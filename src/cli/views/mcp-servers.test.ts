import assert from "node:assert/strict";
import { test } from "node:test";
import { mcpServerOf, stateText } from "./mcp-servers.ts";

const failing = { target: "a", state: "failing", sessions: 1, lastError: "exited", agoMs: 60_000, stderr: ["bye"] };

test("the state of an MCP server is the one that its backend reports", () => {
  assert.deepEqual(mcpServerOf("b", "a", { detail: { servers: [failing] } }), { backend: "b", ...failing });
});

test("a server that its backend does not report is idle", () => {
  const idle = { backend: "b", target: "a", state: "idle", sessions: 0, stderr: [] };
  for (const task of [undefined, { detail: {} }, { detail: { servers: [{ ...failing, target: "c" }] } }])
    assert.deepEqual(mcpServerOf("b", "a", task), idle);
});

test("the state is described with the number of sessions", () => {
  assert.equal(stateText({ state: "up", sessions: 1 }), "running (1 session)");
  assert.equal(stateText({ state: "failing", sessions: 2 }), "running (2 sessions), failed in others");
  assert.equal(stateText({ state: "failing", sessions: 0 }), "failed");
  assert.equal(stateText({ state: "idle", sessions: 0 }), "not started");
  assert.equal(stateText({ state: "idle", sessions: 0, parkedSessions: 3 }), "parked (3 idle sessions)");
});
