/** Tools as a product: which tools of a server clients get, under which names, and what fills their arguments. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import type { TestGateway, TestGatewayOptions } from "../support/gateway.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { startToolsServer, type ToolsServer } from "../support/mcp/tools-server.ts";
import { gatewayFor } from "../support/scenario.ts";

const TOOLS = [
  {
    name: "get_issue",
    description: "The server's own words",
    inputSchema: {
      type: "object",
      properties: {
        owner: { type: "string" },
        number: { type: "integer", maximum: 100 },
        user: { type: "string", description: "who" },
        verbose: { type: "boolean" },
      },
      required: ["owner", "user", "number", "verbose"],
    },
  },
  { name: "delete_issue", inputSchema: { type: "object" } },
  { name: "list_issues", inputSchema: { type: "object" } },
  { name: "admin_reset", inputSchema: { type: "object" } },
];

const KEYS = {
  policies: {
    apiKey: {
      keys: [
        { key: "alice-key", metadata: { user: "alice", teams: ["a", "b"] } },
        { key: "nobody-key", metadata: {} },
      ],
    },
  },
};

const OVERRIDE = {
  get_issue: {
    name: "issue",
    title: "An issue",
    description: "One issue of our tracker",
    arguments: {
      owner: { value: "acme" },
      user: { expression: "apiKey.user" },
      verbose: { default: true, description: "With comments" },
    },
  },
};

interface Setup {
  readonly server: ToolsServer;
  readonly gateway: TestGateway;
  open(key?: string): Promise<RawClient>;
}

async function setUp(
  t: TestContext,
  tools: object | undefined,
  { settings = {}, route = KEYS, more = [] as object[], options = {} as TestGatewayOptions } = {},
): Promise<Setup> {
  const server = await startToolsServer(structuredClone(TOOLS));
  t.after(() => server.close());
  const target = { name: "tracker", mcp: { url: server.url }, ...(tools === undefined ? {} : { tools }) };
  const gateway = await gatewayFor(t, mcpConfig([target, ...more], settings, route), options);
  return {
    server,
    gateway,
    open: async (key = "alice-key") => {
      const client = withKey(rawClient(`${gateway.url()}/mcp`), key);
      await client.initialize();
      return client;
    },
  };
}

function withKey(client: RawClient, key: string): RawClient {
  const { post } = client;
  client.post = (body, headers = {}) => post(body, { authorization: `Bearer ${key}`, ...headers });
  return client;
}

async function names(client: RawClient): Promise<string[]> {
  return (await client.request("tools/list")).result.tools.map(({ name }: Json) => name);
}

test("allow and deny decide which tools are listed and called", async (t) => {
  const { server, open } = await setUp(t, { allow: ["*_issue", "list_*"], deny: ["delete_*"] });
  const client = await open();
  assert.deepEqual(await names(client), ["get_issue", "list_issues"]);
  for (const denied of ["delete_issue", "admin_reset", "unknown"]) {
    const { error } = await client.call(denied);
    assert.deepEqual(error, { code: -32602, message: `Unknown tool: ${denied}` });
  }
  assert.equal(server.calls.length, 0);
  assert.equal((await client.call("list_issues", { a: 1 })).result.content[0].text, '{"a":1}');
});

test("a tool has the name, description and arguments that the configuration gives it", async (t) => {
  const { server, open } = await setUp(t, { override: OVERRIDE });
  const client = await open();
  const listed = await client.post({ jsonrpc: "2.0", id: 1, method: "tools/list" });
  const [tool] = listed.message.result.tools;
  assert.deepEqual([tool.name, tool.title, tool.description], ["issue", "An issue", "One issue of our tracker"]);
  assert.deepEqual(Object.keys(tool.inputSchema.properties), ["number", "verbose"]);
  assert.deepEqual(tool.inputSchema.required, ["number"]);
  assert.deepEqual(tool.inputSchema.properties.verbose, {
    type: "boolean",
    description: "With comments",
    default: true,
  });
  await client.call("issue", { number: 7 });
  assert.deepEqual(server.calls.pop(), {
    name: "get_issue",
    arguments: { number: 7, owner: "acme", user: "alice", verbose: true },
  });
  // What is hidden cannot be set, what has a default can.
  await client.call("issue", { number: 7, owner: "evil", user: "root", verbose: false });
  assert.deepEqual(server.calls.pop().arguments, { number: 7, owner: "acme", user: "alice", verbose: false });
  assert.match((await client.call("get_issue", {})).error.message, /Unknown tool: get_issue/);
  // Without arguments at all.
  await client.request("tools/call", { name: "issue" });
  assert.deepEqual(server.calls.pop().arguments, { owner: "acme", user: "alice", verbose: true });
});

test("a value that the caller's login does not have denies the call, and the log says why", async (t) => {
  const { server, gateway, open } = await setUp(t, { override: OVERRIDE });
  const client = await open("nobody-key");
  const { error } = await client.call("issue", { number: 1, user: "root" });
  assert.match(error.message, /Tool issue cannot be called: a value that your login must provide is missing/);
  assert.equal(server.calls.length, 0);
  const failed = (await (await fetch(`${gateway.adminUrl}/debug/requests`)).text()) as string;
  assert.match(failed, /authorization_denied/);
  assert.match(failed, /argument \\"user\\"/);
});

test("the 2026 era and prefixes see the same tools", async (t) => {
  const { server, gateway } = await setUp(t, { override: OVERRIDE }, { more: [oddTarget()] });
  const headers = { authorization: "Bearer alice-key" };
  const url = `${gateway.url()}/mcp`;
  const listed = await modernPost(url, "tools/list", {}, { headers });
  assert.ok(listed.message.result.tools.some(({ name }: Json) => name === "tracker_issue"));
  const called = await modernPost(
    url,
    "tools/call",
    { name: "tracker_issue", arguments: { number: 3 } },
    { headers: { ...headers, "mcp-name": "tracker_issue" } },
  );
  assert.equal(called.message.result.resultType, "complete");
  assert.deepEqual(server.calls.pop().arguments, { number: 3, owner: "acme", user: "alice", verbose: true });
});

test("rules are about the names that clients see", async (t) => {
  const route = { policies: { ...KEYS.policies, mcpAuthorization: { rules: ['mcp.tool.name == "issue"'] } } };
  const { server, open } = await setUp(t, { override: OVERRIDE }, { route });
  const client = await open();
  assert.deepEqual(await names(client), ["issue"]);
  assert.match((await client.call("list_issues")).error.message, /Unknown tool/);
  await client.call("issue", { number: 1 });
  assert.equal(server.calls.length, 1);
});

test("a renamed tool takes its new name from another one, and nobody gets the wrong one", async (t) => {
  const { server, open } = await setUp(t, { override: { get_issue: { name: "delete_issue" } } });
  const client = await open();
  assert.deepEqual(await names(client), ["delete_issue", "list_issues", "admin_reset"]);
  await client.call("delete_issue", {});
  assert.equal(server.calls.pop().name, "get_issue");
});

test("a call that takes longer than the tool may is ended", async (t) => {
  const clock = fakeClock();
  const { server, open } = await setUp(
    t,
    { timeout: "30s", override: { never: { timeout: "2s" } } },
    { options: { clock } },
  );
  const client = await open();
  const call = client.call("never");
  await eventually("it was called", () => server.calls.length > 0);
  await clock.advance(2_000);
  assert.match((await call).error.message, /tool "never" did not respond within 2 s/);
});

test("a reload that changes tools changes them in sessions that are open", async (t) => {
  const { server, gateway, open } = await setUp(t, { allow: ["get_issue"] });
  const client = await open();
  assert.deepEqual(await names(client), ["get_issue"]);
  const target = { name: "tracker", mcp: { url: server.url }, tools: { allow: ["list_issues"] } };
  assert.equal(await gateway.reload(mcpConfig([target], {}, KEYS)), "loaded");
  assert.deepEqual(await names(client), ["list_issues"]);
  assert.match((await client.call("get_issue")).error.message, /Unknown tool/);
});

for (const [what, tools, problem] of [
  ["two tools of one name", { override: { a: { name: "x" }, b: { name: "x" } } }, /"x" is the name of "a" too/],
  ["a rename onto an overridden tool", { override: { a: { name: "b" }, b: {} } }, /"b" is the name of "a" too/],
  ["an argument with two values", { override: { a: { arguments: { x: { value: 1, default: 2 } } } } }, /only one of/],
  [
    "a fixed argument that is not hidden",
    { override: { a: { arguments: { x: { value: 1, hidden: false } } } } },
    /hidden/,
  ],
  [
    "an expression that does not compile",
    { override: { a: { arguments: { x: { expression: "jwt." } } } } },
    /expression/,
  ],
  ["a name that is none", { override: { a: { name: "a b" } } }, /expected letters/],
] as const)
  test(`${what} stops the load`, async (t) => {
    await assert.rejects(setUp(t, tools), problem);
  });
