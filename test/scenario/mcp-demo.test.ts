/** The embedded default: a demo MCP server over stdio, part of the package. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type RawClient, rawClient } from "../support/mcp/client.ts";
import { fixturePath } from "../support/mcp/fixture.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";

let gateway: TestGateway;
let client: RawClient;
before(async () => {
  const script = join(fixturePath("x"), "../../../../src/demo/mcp-server.js");
  gateway = await startGateway(mcpConfig([{ name: "demo", stdio: { cmd: process.execPath, args: [script] } }]));
  client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
});
after(() => gateway.close());

test("its tools do what they say", async () => {
  const { result } = await client.request("tools/list");
  assert.deepEqual(
    result.tools.map((tool: { name: string }) => tool.name),
    ["echo", "add", "now", "slow"],
  );
  assert.equal((await client.call("echo", { message: "hi" })).result.content[0].text, "hi");
  assert.equal((await client.call("add", { a: 2, b: 40 })).result.content[0].text, "42");
  assert.match((await client.call("now")).result.content[0].text, /^\d{4}-\d\d-\d\dT/);
  assert.deepEqual((await client.call("nothing")).error, { code: -32602, message: "Unknown tool: nothing" });
  assert.equal((await client.request("no/such")).error.code, -32601);
});

test("its slow tool reports progress and can be cancelled", async () => {
  const { messages } = await client.post({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "slow", arguments: { seconds: 0.1 }, _meta: { progressToken: "p" } },
  });
  assert.equal(messages.length, 11);
  const stream = await client.stream({ jsonrpc: "2.0", id: 2, method: "tools/call", params: { name: "slow" } });
  await client.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 2 } });
  await stream.ended;
  assert.equal((await client.call("echo", { message: "still here" })).result.content[0].text, "still here");
});
