/** `statefulMode: stateless`: clients of the 2025 era without sessions, at any replica. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { LEGACY_HEADERS, rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { gatewayFor } from "../support/scenario.ts";

const STATELESS = { statefulMode: "stateless" };
const rpc = (method: string, params?: object, id: unknown = 1) => ({ jsonrpc: "2.0", id, method, params });

test("an SDK client works over two replicas in turn, with one server and with two", async (t) => {
  for (const targets of [[oddTarget("one")], [oddTarget("one"), oddTarget("two")]]) {
    const replicas = [
      await gatewayFor(t, mcpConfig(targets, STATELESS)),
      await gatewayFor(t, mcpConfig(targets, STATELESS)),
    ];
    let n = 0;
    const inTurn: typeof fetch = (url, init) => {
      const { pathname } = new URL(String(url));
      n += 1;
      return fetch(`${replicas[n % 2]?.url()}${pathname}`, init);
    };
    const transport = new StreamableHTTPClientTransport(new URL("http://gateway.test/mcp"), { fetch: inTurn });
    const client = new Client({ name: "sdk", version: "1" });
    await client.connect(transport as Parameters<typeof client.connect>[0]);
    assert.equal(transport.sessionId, undefined);
    const prefix = targets.length === 1 ? "" : "two_";
    const { tools } = await client.listTools();
    assert.ok(tools.some(({ name }) => name === `${prefix}echo`));
    for (let i = 0; i < 4; i++) {
      const { content } = await client.callTool({ name: `${prefix}echo`, arguments: { message: `m${i}` } });
      assert.deepEqual(content, [{ type: "text", text: `m${i}` }]);
    }
    await client.ping();
    await client.close();
  }
});

test("requests stand alone; what needs a session is not offered", async (t) => {
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()], STATELESS));
  const url = `${gateway.url()}/mcp`;
  const client = rawClient(url);
  const post = async (body: unknown) => client.post(body);
  const opened = await post(
    rpc("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } }),
  );
  assert.equal(opened.headers.get("mcp-session-id"), null);
  assert.equal(opened.message.result.protocolVersion, "2025-06-18");
  assert.deepEqual(opened.message.result.capabilities.tools, {});
  assert.equal((await post({ jsonrpc: "2.0", method: "notifications/initialized" })).status, 202);
  // Without initialize, with an id that is a string, and with a big number that must not change.
  const called = await post(
    '{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"echo","arguments":{"message":"12345678901234567890"}}}',
  );
  assert.deepEqual([called.message.id, called.message.result.content[0].text], ["x", "12345678901234567890"]);
  const unknown = await post(rpc("no/such"));
  assert.deepEqual([unknown.status, unknown.message.error.code], [200, -32601]);
  assert.deepEqual((await post(rpc("logging/setLevel", { level: "info" }))).message.result, {});
  assert.equal((await post(rpc("resources/subscribe", { uri: "x://1" }))).message.error.code, -32601);
  assert.equal((await post([rpc("ping")])).status, 400);
  for (const method of ["GET", "DELETE"])
    assert.equal((await fetch(url, { method, headers: { accept: "text/event-stream" } })).status, 405);
  const made = await fetch(url, {
    method: "POST",
    headers: { ...LEGACY_HEADERS, "mcp-session-id": "made-up" },
    body: JSON.stringify(rpc("tools/list")),
  });
  assert.equal(made.status, 404);
  // Clients of the 2026 era notice nothing.
  assert.equal((await modernPost(url, "tools/list")).status, 200);
});

test("rules hold without sessions too", async (t) => {
  const policies = { mcpAuthorization: { rules: ['mcp.tool.name == "echo"'] } };
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()], STATELESS, { policies }));
  const client = rawClient(`${gateway.url()}/mcp`);
  const list = (await client.post(rpc("tools/list"))).message.result.tools;
  assert.deepEqual(
    list.map(({ name }: { name: string }) => name),
    ["echo"],
  );
  const denied = await client.post(rpc("tools/call", { name: "state", arguments: {} }));
  assert.deepEqual([denied.status, denied.message.error.message], [200, "Unknown tool: state"]);
});
