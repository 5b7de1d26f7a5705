/** A reload leaves sessions and children alone whose definition did not change. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startGateway } from "../support/gateway.ts";
import { rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { eventually } from "../support/mcp/processes.ts";

async function pidOf(client: ReturnType<typeof rawClient>): Promise<number> {
  return JSON.parse((await client.call("state")).result.content[0].text).pid;
}

test("a session, its child and a call in flight survive a change of other settings", async () => {
  const gateway = await startGateway(mcpConfig([oddTarget()]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const pid = await pidOf(client);
  const running = client.call("slow", { ms: 1500, message: "through" });
  assert.equal(await gateway.reload(mcpConfig([oddTarget()], { requestTimeout: "60s", maxSessions: 5 })), "loaded");
  assert.equal(await pidOf(client), pid);
  assert.equal((await running).result.content[0].text, "slow through");
  await gateway.close();
});

test("a target that changed gets new sessions, and its old child ends", async () => {
  const gateway = await startGateway(mcpConfig([oddTarget()]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const pid = await pidOf(client);
  assert.equal(await gateway.reload(mcpConfig([oddTarget("other")])), "loaded");
  assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
  await eventually("the old child is gone", () => {
    try {
      process.kill(pid, 0);
      return false;
    } catch {
      return true;
    }
  });
  const fresh = rawClient(`${gateway.url()}/mcp`);
  assert.equal((await fresh.initialize()).message.result.serverInfo.name, "other");
  await gateway.close();
});

test("a file that does not load leaves everything as it is", async () => {
  const gateway = await startGateway(mcpConfig([oddTarget()]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const pid = await pidOf(client);
  assert.equal(await gateway.reload(mcpConfig([{ name: "x" }])), "refused");
  assert.equal(await pidOf(client), pid);
  await gateway.close();
});
