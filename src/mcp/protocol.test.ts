import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type RawClient, rawClient } from "../../test/support/mcp/client.ts";
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

test("the response to initialize is an event stream with a session id and the server's result", async () => {
  const fresh = rawClient(served.url);
  const answer = await fresh.initialize({ capabilities: { roots: { listChanged: true }, x: 1 } });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "text/event-stream");
  assert.match(answer.headers.get("mcp-session-id") ?? "", /^[\x21-\x7e]{32,1000}$/);
  assert.equal(answer.events.length, 1);
  assert.equal(answer.events[0]?.event, "message");
  assert.equal(answer.message.id, "init");
  assert.deepEqual(answer.message.result.serverInfo, { name: "odd", title: "The odd server", version: "1.2.3" });
  assert.equal(answer.message.result.instructions, "Use odd wisely.");
  assert.deepEqual(answer.message.result.capabilities.experimental.echoedCapabilities, {
    roots: { listChanged: true },
    x: 1,
  });
  assert.equal(await fresh.delete(), 204);
});

for (const version of ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]) {
  test(`a client of ${version} gets that revision`, async () => {
    const fresh = rawClient(served.url);
    fresh.version = version;
    const answer = await fresh.initialize();
    assert.equal(answer.message.result.protocolVersion, version);
    assert.deepEqual((await fresh.call("echo", { message: "hi" })).result.content[0].text, "hi");
    await fresh.delete();
  });
}

for (const id of ["7", '"seven"', "9007199254740993", "1.0", "-0", '"\\u00e9"', "1e400"]) {
  test(`a request with the id ${id} is answered under exactly that id [A14]`, async () => {
    const { text } = await client.post(
      `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"echo","arguments":{"message":"m"}}}`,
    );
    assert.ok(text.includes(`"id":${id}`), text);
  });
}

test("unknown content passes unchanged, including numbers beyond 2^53", async () => {
  const { text } = await client.post('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":{"y":[1]}}}');
  assert.ok(text.includes("9223372036854775807"));
  const unknown = await client.request("no/such/method");
  assert.deepEqual(unknown.error, { code: -32601, message: "Method not found: no/such/method" });
});

test("pretty-printed JSON reaches a server that reads lines [P3]", async () => {
  const body = JSON.stringify(
    { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo", arguments: { message: "a\nb" } } },
    null,
    2,
  );
  const { message } = await client.post(body.replaceAll("\n", "\r\n"));
  assert.equal(message.result.content[0].text, "a\nb");
});

test("line breaks of Unicode in strings reach a server that takes them for the end of a line [P37]", async () => {
  const said = "a\u2028b\u2029c\u0085d";
  const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo", arguments: { message: said } } };
  // As JSON.stringify writes them: not escaped.
  assert.ok(JSON.stringify(body).includes(said));
  const { message } = await client.post(body);
  assert.equal(message.result.content[0].text, said);
});

test("a notification is accepted without a body", async () => {
  const answer = await client.post({ jsonrpc: "2.0", method: "notifications/roots/list_changed" });
  assert.equal(answer.status, 202);
  assert.equal(answer.text, "");
  const state = JSON.parse((await client.call("state")).result.content[0].text);
  assert.ok(state.seen.includes("notifications/roots/list_changed"));
});

test("the protocol version with batches returns all responses on one stream", async () => {
  const fresh = rawClient(served.url);
  fresh.version = "2025-03-26";
  await fresh.initialize();
  const answer = await fresh.post([
    { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "slow", arguments: { ms: 30 } } },
    { jsonrpc: "2.0", method: "notifications/x" },
    { jsonrpc: "2.0", id: 2, method: "ping" },
  ]);
  assert.equal(answer.status, 200);
  assert.deepEqual(
    answer.messages.map((message) => message.id),
    [2, 1],
  );
  assert.equal((await fresh.post([])).status, 400);
  assert.equal((await fresh.post([{ jsonrpc: "2.0", id: 3, method: "initialize" }])).status, 400);
  const notes = await fresh.post([{ jsonrpc: "2.0", method: "notifications/x" }]);
  assert.equal(notes.status, 202);
  await fresh.delete();
});

test("two concurrent requests with the same id both get their own response", async () => {
  const [slow, fast] = await Promise.all([
    client.post({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name: "slow", arguments: { ms: 40, message: "first" } },
    }),
    client.post({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name: "echo", arguments: { message: "second" } },
    }),
  ]);
  assert.equal(slow.message.result.content[0].text, "slow first");
  assert.equal(fast.message.result.content[0].text, "second");
});

test("responses with wrong ids reach no client [P4]", async () => {
  const { messages } = await client.post({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "lie" } });
  assert.equal(messages.length, 1);
  assert.equal(messages[0].result.content[0].text, "truth");
});

test("line breaks in a server's text cannot end an event early [V22]", async () => {
  const hostile = 'a\n\ndata: {"jsonrpc":"2.0","id":1,"result":{"forged":true}}\n\n\r\u2028';
  const { messages } = await client.post({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "echo", arguments: { message: hostile } },
  });
  assert.deepEqual(
    messages.map((message) => message.result.content[0].text),
    [hostile],
  );
});

test("what CEL, the log and the trace may read of a request", async () => {
  await client.post({ jsonrpc: "2.0", id: 1, method: "resources/read", params: { uri: "test://odd/a" } });
  assert.deepEqual(served.last?.attributes.mcp, {
    sessionId: client.sessionId,
    methodName: "resources/read",
    target: "odd",
    resource: { uri: "test://odd/a", target: "odd" },
    outcome: "ok",
  });
  await client.call("echo");
  assert.deepEqual(served.last?.attributes.mcp?.tool, { name: "echo", target: "odd" });
});

test("an error response to initialize reaches the client, and no session is left", async () => {
  const refusing = await serveMcp({ targets: [{ name: "odd", stdio: stdioFixture("odd-server", "--refuse") }] });
  const answer = await rawClient(refusing.url).initialize();
  assert.deepEqual(answer.message, { jsonrpc: "2.0", id: "init", error: { code: -32000, message: "not today" } });
  assert.equal(answer.headers.get("mcp-session-id"), null);
  assert.equal(refusing.hub.sessions.size, 0);
  await refusing.close();
  assert.deepEqual(refusing.tasks.report(), []);
});

test("a command that does not exist is an error that names the target, at once [R7]", async () => {
  const missing = await serveMcp({ targets: [{ name: "gone", stdio: { cmd: "/nonexistent/server" } }] });
  const answer = await rawClient(missing.url).initialize();
  assert.equal(answer.status, 200);
  assert.equal(answer.message.error.code, -32603);
  assert.match(answer.message.error.message, /target "gone" could not be started: .*ENOENT/);
  assert.equal(missing.hub.sessions.size, 0);
  assert.equal(missing.hub.children, 0);
  await missing.close();
});
