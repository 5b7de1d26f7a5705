/**
 * What an MCP backend refuses before a server sees it: bodies, heads, and sessions that are missing or ended.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { LEGACY_HEADERS, type RawClient, rawClient, readAnswer } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";

let served: ServedBackend;
let client: RawClient;
before(async () => {
  served = await serveMcp({ targets: [{ name: "odd", stdio: stdioFixture("odd-server", "--greet") }] });
  client = rawClient(served.url);
  await client.initialize();
});
after(() => served.close());

const bodies = [
  { name: "no JSON", body: "{", status: 400, code: -32700 },
  { name: "nothing", body: "", status: 400, code: -32700 },
  { name: "bytes that are no UTF-8", body: new Uint8Array([0x7b, 0x22, 0xff, 0x22, 0x7d]), status: 400, code: -32700 },
  {
    name: "a repeated key",
    body: '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}',
    status: 400,
    code: -32700,
  },
  {
    name: "nesting of a thousand levels",
    body: `{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":${"[".repeat(1000)}${"]".repeat(1000)}}}`,
    status: 400,
    code: -32700,
  },
  { name: "no message", body: '{"a":1}', status: 400, code: -32600 },
  { name: "an id that is null [A14]", body: '{"jsonrpc":"2.0","id":null,"method":"ping"}', status: 400, code: -32600 },
  {
    name: "an id that is an object [A14]",
    body: '{"jsonrpc":"2.0","id":{},"method":"ping"}',
    status: 400,
    code: -32600,
  },
  {
    name: "a batch, which this revision has not [A13]",
    body: '[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    status: 400,
    code: -32600,
  },
  {
    name: "a second initialize",
    body: '{"jsonrpc":"2.0","id":5,"method":"initialize","params":{}}',
    status: 400,
    code: -32600,
    id: 5,
  },
];
for (const { name, body, status, code, id } of bodies) {
  test(`a body with ${name} is refused with ${status} and ${code}`, async () => {
    const response = await fetch(served.url, {
      method: "POST",
      headers: { ...LEGACY_HEADERS, "mcp-session-id": client.sessionId ?? "" },
      body,
    });
    const answer = await readAnswer(response);
    assert.equal(answer.status, status);
    assert.equal(answer.headers.get("content-type"), "application/json");
    assert.equal(answer.message.error.code, code);
    assert.equal(answer.message.id, id ?? null);
  });
}

test("a body of more than 4 MiB is rejected with 413", async () => {
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "echo", arguments: { message: "x".repeat(4 * 1024 * 1024) } },
  });
  assert.equal((await client.post(body)).status, 413);
  const below = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "echo", arguments: { message: "x".repeat(4 * 1024 * 1024 - 200) } },
  });
  assert.equal((await client.post(below)).message.result.content[0].text.length, 4 * 1024 * 1024 - 200);
});

const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
const heads = [
  { name: "an accept header without event streams [A13]", headers: { accept: "application/json" }, status: 406 },
  { name: "an accept header without JSON [A13]", headers: { accept: "text/event-stream" }, status: 406 },
  { name: "an accept header for anything", headers: { accept: "*/*" }, status: 200 },
  { name: "another content type [A13]", headers: { "content-type": "text/plain" }, status: 415 },
  {
    name: "a content type that only begins like JSON",
    headers: { "content-type": "application/json-seq" },
    status: 415,
  },
  {
    name: "a content type with a parameter",
    headers: { "content-type": "application/json; charset=utf-8" },
    status: 200,
  },
  { name: "an encoded body", headers: { "content-encoding": "gzip" }, status: 415 },
  { name: "an unknown protocol version [A13]", headers: { "mcp-protocol-version": "1999-01-01" }, status: 400 },
  { name: "an older protocol version", headers: { "mcp-protocol-version": "2025-03-26" }, status: 200 },
  { name: "an unknown session [A11]", headers: { "mcp-session-id": "0".repeat(32) }, status: 404 },
  { name: "a session id of ten kilobytes [A11]", headers: { "mcp-session-id": "x".repeat(10_000) }, status: 404 },
  { name: "a session id with a path [A11]", headers: { "mcp-session-id": "../../etc/passwd" }, status: 404 },
];
for (const { name, headers, status } of heads) {
  test(`a POST with ${name} is answered with ${status}`, async () => {
    const answer = await client.post(ping, headers);
    assert.equal(answer.status, status);
    if (status >= 400) assert.ok(answer.message.error.message.length > 0);
  });
}

const sessionless = [
  { method: "POST", headers: LEGACY_HEADERS, body: JSON.stringify(ping), status: 400 },
  { method: "GET", headers: { accept: "text/event-stream" }, status: 400 },
  { method: "GET", headers: { accept: "application/json" }, status: 406 },
  { method: "DELETE", headers: {}, status: 400 },
  { method: "GET", headers: { accept: "text/event-stream", "mcp-session-id": "nope" }, status: 404 },
  { method: "DELETE", headers: { "mcp-session-id": "nope" }, status: 404 },
  { method: "PUT", headers: {}, body: "x", status: 405 },
  { method: "PATCH", headers: {}, status: 405 },
];
for (const { method, headers, body, status } of sessionless) {
  test(`${method} with ${JSON.stringify(headers)} is answered with ${status} [A13]`, async () => {
    const response = await fetch(served.url, {
      method,
      headers: headers as Record<string, string>,
      ...(body === undefined ? {} : { body }),
    });
    await response.arrayBuffer();
    assert.equal(response.status, status);
    if (status === 405) assert.equal(response.headers.get("allow"), "GET, POST, DELETE");
  });
}

test("an ended session is gone for every method", async () => {
  const fresh = rawClient(served.url);
  await fresh.initialize();
  assert.equal(await fresh.delete(), 204);
  assert.equal((await fresh.post(ping)).status, 404);
  assert.equal((await fresh.post({ jsonrpc: "2.0", method: "notifications/initialized" })).status, 404);
  assert.equal((await fresh.listen()).status, 404);
  assert.equal(await fresh.delete(), 404);
});
