/** Spec 1.1, 2.1 and 4.1: an MCP server started as a child process, exposed at `/mcp` on a listener. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { openStream, rawClient } from "../support/mcp/client.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernCall } from "../support/mcp/modern-client.ts";

let gateway: TestGateway;
let url: string;
before(async () => {
  gateway = await startGateway(
    mcpConfig(
      [oddTarget()],
      {},
      {
        policies: {
          cors: { allowOrigins: ["https://app.example"], allowHeaders: ["*"], exposeHeaders: ["Mcp-Session-Id"] },
        },
      },
    ),
  );
  url = `${gateway.url()}/mcp`;
});
after(() => gateway.close());

const INITIALIZE = {
  jsonrpc: "2.0",
  method: "initialize",
  params: { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "curl", version: "1" } },
  id: 1,
};

test("POST /mcp with initialize is answered as spec 4.1 says [S1-1] [S2.1-6] [S4.1-1] [S9-2] [S4.1-8] [S4.1-9]", async () => {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify(INITIALIZE),
  });
  assert.equal(response.status, 200);
  assert.equal(response.headers.get("content-type"), "text/event-stream");
  assert.ok(response.headers.get("mcp-session-id"));
  assert.ok(response.headers.get("x-request-id"));
  const text = await response.text();
  const data = /^event: message\n(?:id: .*\n)?data: (.*)\n\n$/.exec(text)?.[1];
  const message = JSON.parse(data ?? "");
  assert.equal(message.id, 1);
  assert.equal(message.result.protocolVersion, "2024-11-05");
  assert.deepEqual(message.result.serverInfo, { name: "odd", title: "The odd server", version: "1.2.3" });
});

test("both transports and both eras are served on one listener", async () => {
  const client = rawClient(url);
  await client.initialize();
  assert.equal((await client.call("echo", { message: "streamable" })).result.content[0].text, "streamable");
  assert.equal(await modernCall(url, "echo", { message: "stateless" }), "stateless");
  const old = await openStream(`${gateway.url()}/sse`, { headers: { accept: "text/event-stream" } });
  await eventually("the endpoint is told", () => old.events.length > 0);
  assert.equal(old.events[0]?.event, "endpoint");
  old.close();
  await client.delete();
});

test("other paths belong to other routes", async () => {
  assert.equal((await fetch(`${gateway.url()}/other`)).status, 404);
});

test("a preflight of an allowed page is answered, and the page may read the session id [S2.1-8]", async () => {
  const preflight = await fetch(url, {
    method: "OPTIONS",
    headers: {
      origin: "https://app.example",
      "access-control-request-method": "POST",
      "access-control-request-headers": "mcp-session-id",
    },
  });
  assert.ok(preflight.ok);
  const answer = await rawClient(url).post(INITIALIZE, { origin: "https://app.example" });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("access-control-allow-origin"), "https://app.example");
  assert.match(answer.headers.get("access-control-expose-headers") ?? "", /mcp-session-id/i);
});

test("a page from elsewhere is refused, in words that name the setting [L7]", async () => {
  const answer = await rawClient(url).post(INITIALIZE, { origin: "https://evil.example" });
  assert.equal(answer.status, 403);
  assert.match(answer.text, /cors\.allowOrigins/);
});

test("the trace names the child, the log and the trace the method", async () => {
  const watching = await openStream(`${gateway.adminUrl}/debug/trace`, {});
  const client = rawClient(url);
  const calling = client.initialize();
  const { message: start } = await watching.next((event) => event.message?.type === "backendCallStart");
  assert.equal(start.message.target, "stdio:odd");
  const { message: snapshot } = await watching.next((event) => event.message?.stage === "final request");
  assert.equal(snapshot.message.requestState.backend.type, "mcp");
  await calling;
  watching.close();
  await client.delete();
});

test("requests, sessions and children are counted", async () => {
  const client = rawClient(url);
  await client.initialize();
  await client.call("echo");
  await client.request("made/up");
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_mcp_requests_total\{backend="tools\/backend0",method="tools\/call"\} [1-9]/);
  assert.match(metrics, /gateway_mcp_requests_total\{backend="tools\/backend0",method="other"\} [1-9]/);
  assert.match(metrics, /gateway_mcp_sessions\{backend="tools\/backend0"\} [1-9]/);
  assert.match(metrics, /gateway_mcp_children\{backend="tools\/backend0"\} [1-9]/);
  await client.delete();
});

test("the short layout serves the same at its own port [S2.1-7]", async () => {
  const short = await startGateway(
    JSON.stringify({
      config: { logging: { level: "warn" } },
      mcp: { port: 0, targets: [oddTarget("a"), oddTarget("b")], prefixMode: "conditional" },
    }),
  );
  const client = rawClient(`${short.url()}/mcp`);
  await client.initialize();
  assert.equal((await client.call("b_echo", { message: "x" })).result.content[0].text, "x");
  await short.close();
});

const wrong = [
  {
    name: "a target without a kind",
    targets: [{ name: "a" }],
    message: /one of `stdio`, `mcp`, `sse`, `openapi` is required/,
  },
  { name: "an unknown field", targets: [{ name: "a", stdio: { cmd: "x", shell: true } }], message: /shell/ },
  { name: "two targets of one name", targets: [oddTarget("a"), oddTarget("a")], message: /used twice/ },
];
for (const { name, targets, message } of wrong) {
  test(`${name} stops the start`, async () => {
    await assert.rejects(startGateway(mcpConfig(targets)), message);
  });
}
