import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { startGateway } from "../support/gateway.ts";

const demo = fileURLToPath(new URL("../../src/demo/mcp-server.js", import.meta.url));
const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };

test("a stop ends idle MCP streams at once, lets a call finish, and leaves no child", async (t) => {
  const gateway = await startGateway(`
mcp:
  port: 0
  targets: [{ name: demo, stdio: { cmd: "${process.execPath}", args: ["${demo}"] } }]
`);
  t.after(() => gateway.close());
  const url = `${gateway.url()}/mcp`;
  const post = (body: object, more: Record<string, string> = {}) =>
    fetch(url, { method: "POST", headers: { ...headers, ...more }, body: JSON.stringify({ jsonrpc: "2.0", ...body }) });
  const opened = await post({
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } },
  });
  const session = {
    "mcp-session-id": opened.headers.get("mcp-session-id") ?? "",
    "mcp-protocol-version": "2025-06-18",
  };
  await opened.text();
  await post({ method: "notifications/initialized" }, session);
  const stream = await fetch(url, { headers: { ...session, accept: "text/event-stream" } });
  assert.equal(stream.status, 200);
  const call = await post(
    { id: 2, method: "tools/call", params: { name: "slow", arguments: { seconds: 1 } } },
    session,
  );

  const stopping = gateway.app.stop();
  assert.match(await call.text(), /"id":2,"result"/);
  await stream.text();
  await stopping;
});
