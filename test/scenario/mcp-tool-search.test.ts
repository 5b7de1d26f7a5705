/** `toolMode: search`: three tools instead of a long list, with the same rules for what they find and call. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { startToolsServer, type ToolsServer } from "../support/mcp/tools-server.ts";
import { gatewayFor } from "../support/scenario.ts";

const NOUNS = [
  "issue",
  "pull request",
  "branch",
  "release",
  "invoice",
  "customer",
  "ticket",
  "deployment",
  "alert",
  "page",
];
const VERBS = ["create", "get", "list", "update", "delete", "search", "export", "archive", "assign", "comment"];

/** As long as those of real servers: names, a sentence or two, some described arguments. */
function manyTools(): Json[] {
  return Array.from({ length: 200 }, (_, i) => {
    const verb = VERBS[i % 10];
    const noun = NOUNS[Math.floor(i / 10) % 10];
    const system = i < 100 ? "tracker" : "billing";
    return {
      name: `${system}_${verb}_${noun?.replace(" ", "_")}`,
      description: `${verb} a ${noun} in the ${system}. Use it when the user wants to ${verb} one ${noun} and has named it.`,
      inputSchema: {
        type: "object",
        properties: {
          id: { type: "string", description: `The id of the ${noun}` },
          project: { type: "string", description: "The project it belongs to" },
          fields: { type: "array", items: { type: "string" }, description: "The fields to return" },
        },
        required: ["id"],
      },
    };
  });
}

async function setUp(t: TestContext, policies: object = {}, targets = 1) {
  const servers: ToolsServer[] = [];
  for (let i = 0; i < targets; i++) servers.push(await startToolsServer(manyTools(), 30));
  t.after(() => Promise.all(servers.map((server) => server.close())));
  const config = servers.map(({ url }, i) => ({ name: `t${i}`, mcp: { url } }));
  const gateway = await gatewayFor(t, mcpConfig(config, { toolMode: "search" }, { policies }));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  return { server: servers[0] as ToolsServer, gateway, client };
}

async function found(client: RawClient, args: object): Promise<string> {
  return (await client.call("find_tools", args)).result.content[0].text;
}

test("200 tools: a client reads less than a tenth at the start", async (t) => {
  const { client } = await setUp(t);
  const { result } = await client.request("tools/list");
  assert.deepEqual(
    result.tools.map(({ name }: Json) => name),
    ["find_tools", "describe_tool", "call_tool"],
  );
  const saved = 1 - JSON.stringify(result.tools).length / JSON.stringify(manyTools()).length;
  assert.ok(saved >= 0.9, `saved ${saved}`);
  const [less, more] = [JSON.stringify(result.tools).length, JSON.stringify(manyTools()).length];
  t.diagnostic(`${less} instead of ${more} characters: ${(saved * 100).toFixed(1)} % less`);
  // One question, its answer and one description, too: the whole way to a tool costs less than the list.
  const question = await found(client, { query: "refund an invoice" });
  const described = (await client.call("describe_tool", { name: "billing_get_invoice" })).result.content[0].text;
  const all = JSON.stringify(result.tools).length + question.length + described.length;
  assert.ok(1 - all / JSON.stringify(manyTools()).length >= 0.9);
});

test("find, describe, call", async (t) => {
  const { client, server } = await setUp(t);
  const text = await found(client, { query: "export invoices billing", limit: 3 });
  assert.match(text, /^- billing_export_invoice: export a invoice in the billing\./);
  assert.match(text, /more: ask with offset 3/);
  assert.match(await found(client, { query: "zzzz" }), /No tool fits/);
  assert.match(await found(client, { limit: 50, offset: 190 }), /billing_comment_page/);
  const described = await client.call("describe_tool", { name: "billing_export_invoice" });
  assert.equal(JSON.parse(described.result.content[0].text).inputSchema.required[0], "id");
  assert.equal((await client.call("describe_tool", { name: "x" })).result.isError, true);
  for (const name of [undefined, 7, ["billing_export_invoice"], "x".repeat(8_193), "\ud800"])
    assert.equal((await client.call("describe_tool", { name })).result.isError, true);
  const words = (chars: number) => "export invoice ".repeat(chars / 15 + 1).slice(0, chars);
  assert.match(await found(client, { query: words(1_000), limit: 1 }), /^- \w+_export_invoice/);
  const long = await client.call("find_tools", { query: words(1_001) });
  assert.equal(long.result.isError, true);
  assert.match(long.result.content[0].text, /^`query` is longer than 1000 characters/);
  const called = await client.post(
    '{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"call_tool","arguments":{"name":"billing_export_invoice","arguments":{"id":12345678901234567890}}}}',
  );
  assert.equal(called.message.id, "c");
  assert.equal(called.message.result.content.length, 1);
  assert.equal(server.calls.pop().name, "billing_export_invoice");
  assert.equal((await client.call("call_tool", {})).result.isError, true);
  assert.equal((await client.call("call_tool", { name: "call_tool", arguments: { name: "x" } })).result.isError, true);
});

test("rules hold for what is found, described and called, and for limits and records", async (t) => {
  const { client, server, gateway } = await setUp(t, {
    mcpAuthorization: { rules: ['mcp.tool.name.startsWith("tracker_get")'] },
    rateLimit: { local: [{ key: "mcp.tool.name", requests: 5, unit: "Hours" }] },
  });
  assert.doesNotMatch(await found(client, { limit: 50 }), /billing|tracker_delete/);
  assert.match(await found(client, { query: "issue" }), /tracker_get_issue/);
  const secret = await client.call("describe_tool", { name: "billing_get_invoice" });
  assert.equal(secret.result.content[0].text, "Unknown tool: billing_get_invoice");
  for (const name of ["billing_get_invoice", "tracker_delete_issue", "unknown"]) {
    const wrapped = await client.call("call_tool", { name, arguments: {} });
    const direct = await client.call(name, {});
    assert.deepEqual(wrapped.error, direct.error);
    assert.equal(wrapped.error.message, `Unknown tool: ${name}`);
  }
  assert.equal(server.calls.length, 0);
  // The limit counts the tool, not the door.
  for (let i = 0; i < 5; i++) await client.call("call_tool", { name: "tracker_get_issue", arguments: { id: "1" } });
  const sixth = await client.post({
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "call_tool", arguments: { name: "tracker_get_issue", arguments: {} } },
  });
  assert.equal(sixth.status, 429);
  assert.equal((await client.call("call_tool", { name: "tracker_get_page", arguments: {} })).error, undefined);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_mcp_results_total\{[^}]*tool="tracker_get_issue"[^}]*outcome="ok"[^}]*\} 5/);
  assert.doesNotMatch(metrics, /tool="call_tool"/);
});

test("several servers and the 2026 era", async (t) => {
  const { client, gateway, server } = await setUp(t, {}, 2);
  assert.match(
    await found(client, { query: "alert tracker delete", limit: 2 }),
    /^- t0_tracker_delete_alert[\s\S]*- t1_/,
  );
  await client.call("call_tool", { name: "t0_tracker_get_page", arguments: { id: "x" } });
  assert.deepEqual(server.calls.pop(), { name: "tracker_get_page", arguments: { id: "x" } });
  const url = `${gateway.url()}/mcp`;
  const listed = await modernPost(url, "tools/list");
  assert.equal(listed.message.result.tools.length, 3);
  assert.equal(listed.message.result.resultType, "complete");
  const called = await modernPost(url, "tools/call", {
    name: "call_tool",
    arguments: { name: "t0_tracker_get_page", arguments: { id: "y" } },
  });
  assert.equal(called.message.result.content[0].text, '{"id":"y"}');
});
