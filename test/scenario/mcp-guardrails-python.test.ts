/** `mcpGuardrails` with a service that uses the gRPC implementation of another language. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { startToolsServer } from "../support/mcp/tools-server.ts";
import { skipWithoutGrpc, startPython } from "../support/python-grpc.ts";
import { gatewayFor } from "../support/scenario.ts";

test("a service in Python changes arguments, headers, and lists, and rejects", { skip: skipWithoutGrpc }, async (t) => {
  const port = await startPython(t, "test/support/mcp-guardrails/processor.py");
  const server = await startToolsServer(
    ["echo", "forbidden"].map((name) => ({ name, inputSchema: { type: "object" } })),
  );
  t.after(() => server.close());
  const processor = {
    host: `127.0.0.1:${Number(port)}`,
    timeout: "30s",
    methods: { "tools/call": "full", "*/list": "response", initialize: "request" },
    metadata: { tenant: '"t1"', roles: '["a", "b"]' },
    requestHeaders: { allowed: ["x-shown"] },
  };
  const targets = ["a", "b"].map((name) => ({
    name,
    mcp: { url: server.url, forwardHeaders: ["x-policy", "x-shown", "x-hidden"] },
  }));
  const gateway = await gatewayFor(
    t,
    mcpConfig(targets, {}, { policies: { mcpGuardrails: { processors: [processor] } } }),
  );
  const url = `${gateway.url()}/mcp`;
  const client = rawClient(url);
  await client.initialize();
  const headers = { "x-shown": "1", "x-hidden": "2" };
  const legacy = async (method: string, params: object) =>
    client.post({ jsonrpc: "2.0", id: 1, method, params }, headers);
  const modern = (method: string, params: object) => modernPost(url, method, { ...params }, { headers });
  for (const send of [legacy, modern]) {
    const list = await send("tools/list", {});
    assert.deepEqual(
      list.message.result.tools.map(({ name }: { name: string }) => name),
      ["a_echo", "b_echo"],
    );
    const echo = (message: string) => send("tools/call", { name: "b_echo", arguments: { message } });
    assert.deepEqual(JSON.parse((await echo("a secret")).message.result.content[0].text), {
      message: "a ******",
      from: "b t1 ['a', 'b'] 1 None",
    });
    const { "x-policy": policy, "x-shown": shown, "x-hidden": hidden } = server.headers.at(-1) ?? {};
    assert.deepEqual([policy, shown, hidden], ["python", undefined, "2"]);
    const forbidden = await send("tools/call", { name: "a_forbidden", arguments: {} });
    assert.equal(forbidden.status, 200);
    assert.deepEqual(forbidden.message.error, { code: -32001, message: "not for you", data: { tool: "forbidden" } });
    assert.deepEqual((await echo("leak")).message.error, { code: -32003, message: "leaks" });
  }
});
