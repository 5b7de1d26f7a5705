import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { openStream, rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";

let served: ServedBackend;
let base: string;
before(async () => {
  served = await serveMcp({ targets: [{ name: "odd", stdio: stdioFixture("odd-server") }] });
  base = served.url.replace(/\/mcp$/, "");
});
after(() => served.close());

async function open() {
  const stream = await openStream(`${base}/sse`, { headers: { accept: "text/event-stream" } });
  assert.equal(stream.status, 200);
  await eventually("the endpoint is told", () => stream.events.length > 0);
  const first = stream.events[0];
  assert.equal(first?.event, "endpoint");
  // It is no JSON: the helper must not look at it again.
  stream.events.shift();
  const endpoint = new URL(first?.data ?? "", base).href;
  const post = (body: object | string, headers: Record<string, string> = { "content-type": "application/json" }) =>
    fetch(endpoint, { method: "POST", headers, body: typeof body === "string" ? body : JSON.stringify(body) });
  return { stream, endpoint, post };
}

test("a client of the old transport works: stream, endpoint, initialize, call, question", async () => {
  const { stream, endpoint, post } = await open();
  assert.match(endpoint, /\/sse\?sessionId=[0-9a-f]{32}$/);
  const accepted = await post({
    jsonrpc: "2.0",
    id: 0,
    method: "initialize",
    params: { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "c", version: "1" } },
  });
  assert.equal(accepted.status, 202);
  const { message } = await stream.next();
  assert.equal(message.id, 0);
  assert.equal(message.result.protocolVersion, "2024-11-05");
  await post({ jsonrpc: "2.0", method: "notifications/initialized" });
  await post({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "slow", arguments: { steps: 1 }, _meta: { progressToken: 5 } },
  });
  assert.equal((await stream.next()).message.params.progressToken, 5);
  assert.equal((await stream.next()).message.id, 1);
  await post({ jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "ask" } });
  const { message: question } = await stream.next();
  await post({ jsonrpc: "2.0", id: question.id, result: { ok: 1 } });
  assert.equal((await stream.next()).message.result.content[0].text, '{"ok":1}');
  stream.close();
});

test("a second initialize is rejected, and the session keeps its servers", async () => {
  const { stream, post } = await open();
  const params = { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "c", version: "1" } };
  const initialize = { jsonrpc: "2.0", id: 0, method: "initialize", params };
  assert.equal((await post(initialize)).status, 202);
  assert.equal((await post({ ...initialize, id: 1 })).status, 400);
  await stream.next();
  assert.equal((await post({ ...initialize, id: 2 })).status, 400);
  await post({ jsonrpc: "2.0", id: 3, method: "tools/call", params: { name: "echo", arguments: { message: "x" } } });
  assert.equal((await stream.next()).message.id, 3);
  stream.close();
});

test("the session ends with its stream", async () => {
  const { stream, post } = await open();
  await post({
    jsonrpc: "2.0",
    id: 0,
    method: "initialize",
    params: { protocolVersion: "2024-11-05", capabilities: {} },
  });
  await stream.next();
  stream.close();
  await stream.ended;
  await eventually("nothing is left", () => served.hub.sessions.size === 0 && served.hub.children === 0);
  assert.equal((await post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
});

test("invalid messages are rejected, and the stream continues", async () => {
  const { stream, post } = await open();
  assert.equal((await post("{")).status, 400);
  assert.equal((await post("[]")).status, 400);
  assert.equal((await post("{}", { "content-type": "text/plain" })).status, 415);
  await post({ jsonrpc: "2.0", id: 7, method: "tools/list" });
  assert.match((await stream.next()).message.error.message, /not initialized/);
  assert.equal(
    (
      await fetch(`${base}/sse?sessionId=${"0".repeat(32)}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: "{}",
      })
    ).status,
    400,
  );
  stream.close();
});

test("an unknown session is not found", async () => {
  const response = await fetch(`${base}/sse?sessionId=nope`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: '{"jsonrpc":"2.0","id":1,"method":"ping"}',
  });
  assert.equal(response.status, 404);
});

test("another's stream cannot be posted to", async () => {
  served.attributes = { jwt: { iss: "i", sub: "alice" } };
  const { stream, post } = await open();
  served.attributes = { jwt: { iss: "i", sub: "bob" } };
  assert.equal((await post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
  served.attributes = {};
  stream.close();
});

test("the newer transport works at the same path", async () => {
  const client = rawClient(`${base}/sse`);
  assert.equal((await client.initialize()).status, 200);
  assert.equal((await client.call("echo", { message: "x" })).result.content[0].text, "x");
  await client.delete();
});

test("a session of one transport is none of the other", async () => {
  const { stream, endpoint } = await open();
  const id = new URL(endpoint).searchParams.get("sessionId") ?? "";
  const client = rawClient(served.url);
  client.sessionId = id;
  assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
  stream.close();
});
