/**
 * What a new user does, in the order of the documents: several servers of which one is broken, tools for some people
 * only, a refusal that somebody asks about later, and a mistake in the file while it runs.
 */
import assert from "node:assert/strict";
import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { gwctl } from "../support/gwctl.ts";
import { LEGACY_HEADERS, rawClient } from "../support/mcp/client.ts";
import { fixturePath } from "../support/mcp/fixture.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { gatewayFor } from "../support/scenario.ts";

const DEMO = join(fixturePath("x"), "../../../../src/demo/mcp-server.js");
const demo = { cmd: process.execPath, args: [DEMO] };

test("of several servers a broken one is named, the others work, and it appears when it is mended", async (t) => {
  const late = { cmd: process.execPath, args: ["late.mjs"], cwd: "." };
  const gateway = await gatewayFor(
    t,
    mcpConfig([
      { name: "demo", stdio: demo },
      { name: "late", stdio: late },
    ]),
  );
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const names = async (): Promise<string[]> =>
    (await client.request("tools/list")).result.tools.map((tool: { name: string }) => tool.name);
  const first = await client.request("tools/list");
  assert.deepEqual(Object.keys(first.result._meta["gateway.internal/failedTargets"]), ["late"]);
  assert.deepEqual(await names(), ["demo_echo", "demo_add", "demo_now", "demo_slow"]);
  assert.match(await gateway.logged("MCP server failed"), /target=late/);

  const script = join(gateway.folder, "late.mjs");
  writeFileSync(`${script}.new`, `await import(${JSON.stringify(DEMO)});\n`);
  renameSync(`${script}.new`, script);
  await eventually("the tools of the mended server are there", async () => (await names()).includes("late_echo"));
});

/** As in examples/mcp-tools-by-role, with a server that needs no network. */
const byRole = mcpConfig(
  [{ name: "demo", stdio: demo }],
  {},
  {
    policies: {
      apiKey: {
        keys: [
          { key: "alice-secret", metadata: { user_id: "alice", role: "admin" } },
          { key: "bob-secret", metadata: { user_id: "bob", role: "developer" } },
          { key: "eve-secret", metadata: { user_id: "eve", role: "guest" } },
        ],
      },
      authorization: { rules: ['apiKey.role in ["admin", "developer"]'] },
      mcpAuthorization: { rules: ['apiKey.role == "admin"', 'mcp.tool.name in ["echo", "add"]'] },
    },
  },
);

test("only some people, only some tools: what is not his a caller does not even see", async (t) => {
  const gateway = await gatewayFor(t, byRole);
  const toolsOf = async (key: string): Promise<string[]> => {
    const client = rawClient(`${gateway.url()}/mcp`);
    const headers = { "x-api-key": key };
    const ask = (id: number, method: string, params: object) =>
      client.post({ jsonrpc: "2.0", id, method, params }, headers);
    const clientInfo = { name: "test", version: "1" };
    const opened = await ask(1, "initialize", { protocolVersion: client.version, capabilities: {}, clientInfo });
    client.sessionId = opened.headers.get("mcp-session-id") ?? undefined;
    const hidden = await ask(2, "tools/call", { name: "now", arguments: {} });
    assert.equal(hidden.message.error?.message, key === "alice-secret" ? undefined : "Unknown tool: now");
    return (await ask(3, "tools/list", {})).message.result.tools.map((tool: { name: string }) => tool.name);
  };
  assert.deepEqual(await toolsOf("alice-secret"), ["echo", "add", "now", "slow"]);
  assert.deepEqual(await toolsOf("bob-secret"), ["echo", "add"]);
});

test("why was this refused? the id of the response is enough", async (t) => {
  const gateway = await gatewayFor(t, byRole);
  const answer = await fetch(`${gateway.url()}/mcp`, {
    method: "POST",
    headers: { ...LEGACY_HEADERS, "x-api-key": "eve-secret" },
    body: "{}",
  });
  await answer.text();
  assert.equal(answer.status, 403);
  const { port } = new URL(gateway.adminUrl);
  const { code, stdout } = await gwctl(["explain", answer.headers.get("x-request-id") ?? "", "-p", port]);
  assert.equal(code, 0);
  assert.match(stdout, /as `eve`/);
  assert.match(stdout, /Denied by `authorization` of route `tools` \(403\)/);
  assert.match(stdout, /`apiKey\.role in \["admin", "developer"\]` is not true: apiKey\.role is "guest"/);
  const failed = await gwctl(["requests", "--failed", "-p", port]);
  assert.match(failed.stdout, /403 .*eve .*authorization_denied/);
});

test("change without fear: a mistake in the file is refused with its place, and a call in flight ends well", async (t) => {
  const good = mcpConfig([{ name: "demo", stdio: demo }]);
  const gateway = await gatewayFor(t, good);
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const slow = client.call("slow", { seconds: 1 });
  assert.equal(await gateway.reload(good.replace('"targets"', '"tragets"')), "refused");
  assert.match(
    await gateway.logged("tragets"),
    /config\.yaml:1:\d+: .*tragets: unknown field, did you mean "targets"\?/,
  );
  assert.equal((await client.call("add", { a: 2, b: 40 })).result.content[0].text, "42");
  assert.equal(await gateway.reload(mcpConfig([{ name: "demo", stdio: demo }], { sessionIdleTtl: "10m" })), "loaded");
  const done = await slow;
  assert.equal(done.result?.content[0].text, "worked for 1 s", JSON.stringify(done));
});
