/** Rules about the arguments of a tool call, and guards on its result. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { startToolsServer, type ToolsServer } from "../support/mcp/tools-server.ts";
import { gatewayFor } from "../support/scenario.ts";

async function setUp(
  t: TestContext,
  policies: object,
  tools?: object,
): Promise<{ server: ToolsServer; client: RawClient; gateway: TestGateway }> {
  const server = await startToolsServer([
    { name: "read", inputSchema: { type: "object" } },
    { name: "write", inputSchema: { type: "object" } },
  ]);
  t.after(() => server.close());
  const target = { name: "files", mcp: { url: server.url }, ...(tools === undefined ? {} : { tools }) };
  const gateway = await gatewayFor(t, mcpConfig([target], {}, { policies }));
  const client = rawClient(`${gateway.url()}/mcp`);
  client.version = "2025-03-26";
  await client.initialize();
  return { server, client, gateway };
}

const deep = (levels: number): Json => (levels === 0 ? "x" : { a: deep(levels - 1) });

const RULE = 'mcp.tool.name == "read" && (!has(mcp.tool.arguments) || mcp.tool.arguments.path.startsWith("/docs/"))';

test("mcpAuthorization judges arguments; what it cannot read it denies", async (t) => {
  const { server, client } = await setUp(t, { mcpAuthorization: { rules: [RULE] } });
  const { result } = await client.request("tools/list");
  assert.deepEqual(
    result.tools.map(({ name }: Json) => name),
    ["read"],
  );
  assert.equal((await client.call("read", { path: "/docs/a" })).error, undefined);
  assert.equal(server.calls.length, 1);
  const denied = [
    { path: "/etc/passwd" },
    {},
    { path: 7 },
    { path: "/docs/a", more: "x".repeat(70_000) },
    { path: "/docs/a", more: deep(20) },
    { path: "/docs/a", more: Array.from({ length: 6_000 }, () => 1) },
  ];
  for (const args of denied) assert.equal((await client.call("read", args)).error?.message, "Unknown tool: read");
  assert.match((await client.request("tools/call", { name: "read" })).error.message, /Unknown tool/);
  assert.match(
    (await client.request("tools/call", { name: "read", arguments: "/docs/" })).error.message,
    /Unknown tool/,
  );
  // A batch is judged message by message.
  const { messages } = await client.post(
    ["/docs/b", "/etc/shadow"].map((path, id) => ({
      jsonrpc: "2.0",
      id,
      method: "tools/call",
      params: { name: "read", arguments: { path } },
    })),
  );
  assert.deepEqual(
    messages
      .flat()
      .map((one: Json) => one.error?.message)
      .sort(),
    ["Unknown tool: read", undefined],
  );
  assert.equal(server.calls.length, 2);
});

test("no spelling of an argument leads around rules that name it [A26]", async (t) => {
  const rules = [
    'mcp.tool.name == "read" && (!has(mcp.tool.arguments) || !has(mcp.tool.arguments.path) || mcp.tool.arguments.path.startsWith("/docs/"))',
    { deny: "has(mcp.tool.arguments) && default(mcp.tool.arguments.force, false) == true" },
  ];
  const { server, client } = await setUp(t, { mcpAuthorization: { rules } });
  const refused = [
    { path: "/docs/a", Path: "/etc/passwd" },
    { Path: "/etc/passwd" },
    { PATH: "/docs/a" },
    { path: "/docs/a", Force: true },
    { path: "/docs/a", FORCE: true, force: false },
    { path: "/docs/a", force: true, more: "x".repeat(70_000) },
  ];
  for (const args of refused) {
    const { error } = await client.call("read", args);
    assert.deepEqual([error?.code, error?.message], [-32602, "Unknown tool: read"], JSON.stringify(args));
  }
  assert.equal(server.calls.length, 0);
  assert.equal((await client.call("read", { path: "/docs/a", other: 1, Other: 2 })).error, undefined);
});

test("no spelling of an argument leads around an override [A26]", async (t) => {
  const override = { read: { arguments: { tenant: { value: "mine" }, a: { hidden: true }, size: { default: 5 } } } };
  const { server, client } = await setUp(t, {}, { override });
  for (const args of [{ Tenant: "other" }, { A: "x" }, { a: "x", A: "y" }, { Size: 9 }, { size: 1, SIZE: 2 }]) {
    const { error } = await client.call("read", args);
    assert.equal(error?.code, -32602, JSON.stringify(args));
    assert.match(error?.message, /is not known/);
  }
  assert.equal(server.calls.length, 0);
  assert.equal((await client.call("read", { a: "x", tenant: "other", B: 1 })).error, undefined);
  assert.deepEqual(server.calls.at(-1)?.arguments, { tenant: "mine", size: 5, B: 1 });
});

test("authorization rules and limit keys read arguments, too", async (t) => {
  const { server, client } = await setUp(t, {
    authorization: {
      rules: ['mcp.methodName != "tools/call" || default(mcp.tool.arguments.tenant, "") in ["a", "b"]'],
    },
    rateLimit: {
      local: [{ key: 'has(mcp.tool.arguments) ? mcp.tool.arguments.tenant : "none"', requests: 2, unit: "Hours" }],
    },
  });
  const status = async (tenant: unknown): Promise<number> =>
    (
      await client.post({
        jsonrpc: "2.0",
        id: 1,
        method: "tools/call",
        params: { name: "read", arguments: { tenant } },
      })
    ).status;
  assert.deepEqual([await status("a"), await status("a"), await status("a"), await status("b")], [200, 200, 429, 200]);
  assert.equal(await status("c"), 403);
  assert.equal(server.calls.length, 3);
});

test("texts in results are masked or rejected, wherever they stand", async (t) => {
  const { server, client } = await setUp(
    t,
    {},
    {
      resultGuard: [
        { regex: { action: "mask", rules: [{ builtin: "email" }] } },
        {
          regex: { action: "reject", rules: [{ pattern: "(?i)internal use only" }] },
          rejection: { body: "not for you" },
        },
      ],
    },
  );
  server.results.read = {
    content: [
      { type: "text", text: "write to a\\u0040b.example or ann@corp.example" },
      { type: "image", data: "iVBORw0KGgoAAAANSUhEUg==", mimeType: "image/png" },
    ],
    structuredContent: { to: "ann@corp.example", "bob@corp.example": { big: 1 } },
  };
  const { result } = await client.call("read");
  assert.doesNotMatch(JSON.stringify(result), /corp\.example/);
  assert.equal(result.structuredContent.to, "<EMAIL_ADDRESS>");
  assert.equal(result.content[1].data, "iVBORw0KGgoAAAANSUhEUg==");
  server.results.write = { content: [{ type: "text", text: "x" }], structuredContent: { note: "Internal Use Only" } };
  assert.deepEqual((await client.call("write")).result, {
    content: [{ type: "text", text: "not for you" }],
    isError: true,
  });
  server.results.write = { content: [{ type: "text", text: "y".repeat(3_000_000) }] };
  assert.match((await client.call("write")).result.content[0].text, /not for you \(the result is too large/);
});

test("the result of a tool that was called as a task passes the same guards", async (t) => {
  const { server, client } = await setUp(
    t,
    {},
    { resultGuard: [{ regex: { action: "mask", rules: [{ builtin: "email" }] } }] },
  );
  server.results["task-1"] = { content: [{ type: "text", text: "ann@corp.example" }] };
  server.results["task-2"] = { status: "completed", result: { content: [{ type: "text", text: "ann@corp.example" }] } };
  for (const taskId of ["task-1", "task-2"]) {
    server.results.read = { task: { taskId, status: "working", ttl: null } };
    assert.equal((await client.call("read")).result.task.taskId, taskId);
  }
  for (const method of ["tasks/result", "tasks/get"])
    for (const taskId of ["task-1", "task-2"]) {
      const { result } = await client.request(method, { taskId });
      assert.match(JSON.stringify(result), /<EMAIL_ADDRESS>/);
      assert.doesNotMatch(JSON.stringify(result), /corp\.example/);
    }
});

test("result guards in shadow mode change nothing, and the shadow report has what they would do", async (t) => {
  const { server, client, gateway } = await setUp(
    t,
    {},
    {
      resultGuard: [
        { mode: "shadow", regex: { action: "mask", rules: [{ builtin: "email" }] } },
        { mode: "shadow", regex: { action: "reject", rules: [{ pattern: "(?i)internal use only" }] } },
      ],
    },
  );
  const mail = { content: [{ type: "text", text: "write to ann@corp.example" }] };
  server.results.read = mail;
  assert.deepEqual((await client.call("read")).result, mail);
  const internal = { content: [{ type: "text", text: "Internal use only" }] };
  server.results.write = internal;
  assert.deepEqual((await client.call("write")).result, internal);
  let rules: { policy: string; rule: string; denied: number }[] = [];
  await eventually("both are in the report", async () => {
    ({ rules } = (await (await fetch(`${gateway.adminUrl}/debug/shadow`)).json()) as { rules: typeof rules });
    return rules.length === 2;
  });
  assert.deepEqual(rules.map(({ policy, rule, denied }) => [policy, rule, denied]).sort(), [
    ["mcp", "resultGuard: (?i)internal use only", 1],
    ["mcp", "resultGuard: email", 1],
  ]);
});
