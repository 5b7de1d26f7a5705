import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../../test/support/eventually.ts";
import { type RawClient, rawClient } from "../../test/support/mcp/client.ts";
import { stdioFixture } from "../../test/support/mcp/fixture.ts";
import { type RemoteFixture, startRemote } from "../../test/support/mcp/http-server.ts";
import { type ServedBackend, serveMcp } from "../../test/support/mcp/serve-backend.ts";

async function withRemote(
  kind: "http" | "sse",
  options: Parameters<typeof startRemote>[1],
  settings: object,
  run: (client: RawClient, remote: RemoteFixture, served: ServedBackend) => Promise<void>,
): Promise<void> {
  const remote = await startRemote(kind, options);
  const served = await serveMcp({
    targets: [{ name: "remote", [kind === "http" ? "mcp" : "sse"]: { url: remote.url, ...settings } }],
  });
  try {
    await run(rawClient(served.url), remote, served);
  } finally {
    await served.close();
    await remote.close();
  }
}

for (const json of [false, true]) {
  test(`a streamable HTTP server that answers with ${json ? "JSON" : "events"} is passed through`, async () => {
    await withRemote("http", { json }, {}, async (client, remote) => {
      const { message } = await client.initialize();
      assert.deepEqual(message.result.serverInfo, { name: "remote", version: "1" });
      assert.equal((await client.call("echo", { message: "a\nb" })).result.content[0].text, "a\nb");
      assert.equal((await client.request("no/method")).error.code, -32601);
      assert.equal(await client.delete(), 204);
      await eventually("its session has ended", () => remote.sessions.size === 0);
    });
  });
}

test("progress on a remote server's stream reaches the client under its own token", async () => {
  await withRemote("http", {}, {}, async (client) => {
    await client.initialize();
    const { messages } = await client.post({
      jsonrpc: "2.0",
      id: 3,
      method: "tools/call",
      params: { name: "echo", arguments: { message: "m" }, _meta: { progressToken: "p" } },
    });
    assert.deepEqual(
      messages.map((message) => message.params?.progressToken ?? message.id),
      ["p", 3],
    );
  });
});

test("a remote server's own messages reach the client's general stream", async () => {
  await withRemote("http", {}, {}, async (client, remote) => {
    await client.initialize();
    const general = await client.listen();
    await eventually("the gateway listens", () => remote.received.some(({ method }) => method === "GET"));
    await client.call("echo");
    remote.broadcast({ jsonrpc: "2.0", method: "notifications/tools/list_changed" });
    assert.equal((await general.next()).message.method, "notifications/tools/list_changed");
    await client.delete();
  });
});

test("a server that forgot the session gets a new one, and the client never notices", async () => {
  await withRemote("http", {}, {}, async (client, remote) => {
    await client.initialize();
    assert.equal((await client.call("echo", { message: "1" })).result.content[0].text, "1");
    const sessionId = client.sessionId;
    remote.forget();
    assert.equal((await client.call("echo", { message: "2" })).result.content[0].text, "2");
    assert.equal(client.sessionId, sessionId);
    assert.equal(remote.received.filter(({ body }) => body.includes('"initialize"')).length, 2);
    assert.equal(remote.received.filter(({ body }) => body.includes("notifications/initialized")).length, 2);
  });
});

const clientHeaders = { authorization: "Bearer client", cookie: "c=1", "x-tenant": "t1", "mcp-param-region": "eu" };

test("no header of the client reaches a server that is not named for it [V26]", async () => {
  await withRemote("http", {}, { headers: { "x-key": "k3y" } }, async (client, remote) => {
    await client.post(
      { jsonrpc: "2.0", id: 0, method: "initialize", params: { protocolVersion: "2025-06-18", capabilities: {} } },
      clientHeaders,
    );
    for (const { headers } of remote.received) {
      assert.equal(headers.authorization, undefined);
      assert.equal(headers.cookie, undefined);
      assert.equal(headers["x-tenant"], undefined);
      assert.equal(headers["x-key"], "k3y");
      assert.equal(headers.host, new URL(remote.url).host);
    }
  });
});

test("a client's session id is never a server's [V26]", async () => {
  await withRemote("http", {}, {}, async (client, remote) => {
    await client.initialize();
    await client.call("echo");
    assert.ok(client.sessionId);
    assert.ok(!JSON.stringify(remote.received).includes(client.sessionId));
    assert.equal(remote.received.at(-1)?.headers["mcp-session-id"], "remote-1");
    assert.equal(remote.received.at(-1)?.headers["mcp-protocol-version"], "2025-11-25");
  });
});

test("configured headers are forwarded, also with requests of the gateway itself", async () => {
  await withRemote("http", {}, { forwardHeaders: ["X-Tenant", "authorization"] }, async (client, remote) => {
    const initialize = {
      jsonrpc: "2.0",
      id: 0,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {} },
    };
    const opened = await client.post(initialize, clientHeaders);
    client.sessionId = opened.headers.get("mcp-session-id") ?? "";
    await client.post(
      { jsonrpc: "2.0", id: 1, method: "ping" },
      { ...clientHeaders, authorization: "Bearer client", "x-tenant": "t2" },
    );
    assert.equal(remote.received[0]?.headers["x-tenant"], "t1");
    assert.equal(remote.received[0]?.headers.authorization, "Bearer client");
    assert.equal(remote.received.at(-1)?.headers["x-tenant"], "t2");
    assert.equal(remote.received.at(-1)?.headers.cookie, undefined);
  });
});

test("an unreachable server is reported in the error", async () => {
  const remote = await startRemote("http");
  await remote.close();
  const served = await serveMcp({ targets: [{ name: "away", mcp: { url: remote.url } }] });
  const { status, message } = await rawClient(served.url).initialize();
  assert.equal(status, 200);
  assert.match(message.error.message, /target "away" could not be reached: .*ECONNREFUSED/);
  await served.close();
});

test("the error quotes the body of a response with an error status", async () => {
  const remote = await startRemote("http");
  const served = await serveMcp({ targets: [{ name: "wrong", mcp: { url: remote.url.replace("/mcp", "/mcp?x=1") } }] });
  const client = rawClient(served.url);
  await client.initialize();
  // The fixture answers 400 to anything without a session: its answer is made so by taking its sessions away mid-way.
  remote.forget();
  await remote.close();
  const { error } = await client.call("echo");
  assert.match(error.message, /target "wrong" (could not be reached|broke off)/);
  await served.close();
});

test("a server of the old transport is passed through", async () => {
  await withRemote("sse", {}, {}, async (client, remote) => {
    assert.equal((await client.initialize()).message.result.serverInfo.name, "remote");
    assert.equal((await client.call("echo", { message: "old" })).result.content[0].text, "old");
    const general = await client.listen();
    remote.broadcast({ jsonrpc: "2.0", method: "notifications/x" });
    assert.equal((await general.next()).message.method, "notifications/x");
    await client.delete();
    await eventually("its session has ended", () => remote.sessions.size === 0);
  });
});

test("an endpoint of another origin is rejected", async () => {
  await withRemote("sse", { endpoint: "http://evil.example/messages" }, {}, async (client) => {
    const { status, message } = await client.initialize();
    assert.equal(status, 200);
    assert.match(message.error.message, /endpoint of another origin/);
  });
});

test("servers of all kinds stand behind one endpoint", async () => {
  const [http, sse] = await Promise.all([startRemote("http"), startRemote("sse")]);
  const served = await serveMcp({
    targets: [
      { name: "near", stdio: stdioFixture("odd-server") },
      { name: "far", mcp: { url: http.url } },
      { name: "old", sse: { url: sse.url } },
    ],
  });
  const client = rawClient(served.url);
  await client.initialize();
  for (const name of ["near", "far", "old"])
    assert.equal((await client.call(`${name}_echo`, { message: name })).result.content[0].text, name);
  assert.equal((await client.request("tools/list")).result.tools.length, 15);
  await served.close();
  await Promise.all([http.close(), sse.close()]);
});
