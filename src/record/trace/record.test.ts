import assert from "node:assert/strict";
import { test } from "node:test";
import { resultOf } from "./record.ts";

const complete = { status: 200, end: "complete" } as const;

test("a request without a complete response or with status 5xx failed", () => {
  for (const request of [
    { status: null, end: "complete" },
    { status: 502, end: "complete" },
    { status: 200, end: "failed" },
  ] as const)
    assert.equal(resultOf(request), "failed");
});

test("a request with status 4xx is rejected, whoever sent the response", () => {
  assert.equal(resultOf({ ...complete, status: 404 }), "rejected");
  assert.equal(resultOf({ ...complete, status: 429, failure: { source: "gateway" } }), "rejected");
});

test("an MCP call can fail inside a response with status 200", () => {
  assert.equal(resultOf({ ...complete, failure: { source: "upstream" } }), "failed");
  assert.equal(resultOf({ ...complete, failure: { source: "client" } }), "rejected");
  assert.equal(resultOf({ ...complete, mcp: { outcome: "tool_error" } }), "failed");
  assert.equal(resultOf({ ...complete, mcp: { outcome: "denied" } }), "rejected");
  assert.equal(resultOf({ ...complete, mcp: { outcome: "failed" } }), "failed");
  assert.equal(resultOf({ ...complete, mcp: { outcome: "ok" } }), "ok");
});

test("a stream that a guard rejects is rejected, although it has status 200", () => {
  assert.equal(resultOf({ status: 200, end: "failed", failure: { source: "client" } }), "rejected");
  assert.equal(resultOf({ status: 200, end: "failed", failure: { source: "upstream" } }), "failed");
});

test("a client that disconnects during a response is neither a failure nor a rejection", () => {
  assert.equal(resultOf({ status: 200, end: "aborted" }), "aborted");
  assert.equal(resultOf({ status: null, end: "aborted" }), "aborted");
  assert.equal(resultOf({ status: 200, end: "aborted", mcp: { outcome: "cancelled" } }), "aborted");
});
