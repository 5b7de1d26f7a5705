/** The official clients of both generations against the gateway: what real hosts run. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CreateMessageRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { stdioFixture } from "../support/mcp/fixture.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";

let gateway: TestGateway;
let several: TestGateway;
before(async () => {
  gateway = await startGateway(mcpConfig([oddTarget()]));
  several = await startGateway(
    mcpConfig([oddTarget("old"), { name: "new", stdio: stdioFixture("conformance-server", "stdio") }]),
  );
});
after(() => Promise.all([gateway.close(), several.close()]));

const info = { name: "sdk-test", version: "1.0.0" };
const endpoint = (at: TestGateway, path = "/mcp"): URL => new URL(`${at.url()}${path}`);

/** The SDK hands notifications on in a later turn than answers: the last may come too late for its own listener. */
function assertProgress(seen: readonly number[], steps: number): void {
  const all = Array.from({ length: steps }, (_, i) => i + 1);
  assert.ok(seen.length >= steps - 1, `only ${seen.join(", ")}`);
  assert.deepEqual(seen, all.slice(0, seen.length));
}

type Content = { type: string; text?: string }[];

for (const [name, open] of [
  ["streamable HTTP", () => new StreamableHTTPClientTransport(endpoint(gateway))],
  ["HTTP+SSE", () => new SSEClientTransport(endpoint(gateway, "/sse"))],
] as const) {
  test(`the first generation over ${name}: tools, prompts, resources, progress, sampling, list changes`, async (t) => {
    const client = new Client(info, { capabilities: { sampling: {} } });
    t.after(() => client.close());
    client.setRequestHandler(CreateMessageRequestSchema, () => ({
      role: "assistant",
      content: { type: "text", text: "sampled" },
      model: "m",
    }));
    const changed = new Promise<void>((resolve) =>
      client.setNotificationHandler(ToolListChangedNotificationSchema, () => resolve()),
    );
    await client.connect(open());
    assert.equal(client.getServerVersion()?.name, "odd");
    assert.equal((await client.listTools()).tools.length, 13);
    assert.equal((await client.listPrompts()).prompts.length, 2);
    assert.equal((await client.readResource({ uri: "test://odd/a" })).contents.length, 1);
    const progress: number[] = [];
    const slow = await client.callTool({ name: "slow", arguments: { steps: 3, asks: true } }, undefined, {
      onprogress: (one) => progress.push(one.progress),
    });
    assert.equal((slow.content as Content)[0]?.text, "slow ");
    assertProgress(progress, 3);
    const asked = await client.callTool({ name: "ask", arguments: { params: { messages: [], maxTokens: 5 } } });
    assert.match((asked.content as Content)[0]?.text ?? "", /sampled/);
    await client.callTool({ name: "notify", arguments: { method: "notifications/tools/list_changed" } });
    await changed;
    await client.ping();
    await client.close();
  });
}

test("the first generation cancels, and its connection survives a crash of the server", async () => {
  const client = new Client(info);
  await client.connect(new StreamableHTTPClientTransport(endpoint(gateway)));
  const abort = new AbortController();
  const running = client.callTool({ name: "silent" }, undefined, { signal: abort.signal });
  abort.abort("enough");
  await assert.rejects(running);
  await assert.rejects(client.callTool({ name: "crash" }), /SIGKILL/);
  const echoed = await client.callTool({ name: "echo", arguments: { message: "alive" } });
  assert.equal((echoed.content as Content)[0]?.text, "alive");
  await client.close();
});

test("the first generation asks once for the rest of an error, and never takes its own streams away", async (t) => {
  const gets: string[] = [];
  const counted: typeof fetch = async (url, init) => {
    const response = await fetch(url, init);
    const isResumed = new Headers(init?.headers).has("last-event-id");
    if (init?.method === "GET") gets.push(`${isResumed ? "resumed" : "general"} ${response.status}`);
    return response;
  };
  const client = new Client(info);
  t.after(() => client.close());
  const changed = new Promise<void>((resolve) =>
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => resolve()),
  );
  await client.connect(new StreamableHTTPClientTransport(endpoint(gateway), { fetch: counted }));
  await assert.rejects(client.callTool({ name: "nothing" }), /Unknown tool/);
  // An error on a stream that has begun.
  await new Promise<void>((resolve) => {
    const options = { onresumptiontoken: () => resolve() };
    assert.rejects(client.callTool({ name: "silent" }, undefined, options), /SIGKILL/).catch(t.diagnostic);
  });
  await assert.rejects(client.callTool({ name: "crash" }), /SIGKILL/);
  await eventually("it asks for the rest", () => gets.length === 2);
  await client.callTool({ name: "notify", arguments: { method: "notifications/tools/list_changed" } });
  await changed;
  assert.deepEqual(gets.sort(), ["general 200", "resumed 405"]);
});

for (const mode of ["legacy", "auto"] as const) {
  test(`the second generation (${mode}) sees several servers of both eras as one`, async () => {
    const client = new ModernClient(info, { capabilities: { elicitation: {} }, versionNegotiation: { mode } });
    client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: { name: "Ada" } }));
    await client.connect(new ModernTransport(endpoint(several)));
    assert.equal(client.getServerVersion()?.name, "gateway");
    const { tools } = await client.listTools();
    assert.ok(
      tools.some(({ name }) => name === "old_echo") && tools.some(({ name }) => name === "new_test_simple_text"),
    );
    const echoed = await client.callTool({ name: "old_echo", arguments: { message: mode } });
    assert.equal((echoed.content as Content)[0]?.text, mode);
    const greeted = await client.callTool({ name: "new_test_input_required_result_elicitation" });
    assert.equal((greeted.content as Content)[0]?.text, "Hello, Ada!");
    const asked = await client.callTool({
      name: "old_ask",
      arguments: {
        method: "elicitation/create",
        params: { message: "?", requestedSchema: { type: "object", properties: {} } },
      },
    });
    assert.match((asked.content as Content)[0]?.text ?? "", /Ada/);
    await client.close();
  });
}

test("the second generation reports progress over the stateless protocol", async () => {
  const client = new ModernClient(info, { versionNegotiation: { mode: "auto" } });
  await client.connect(new ModernTransport(endpoint(gateway)));
  const progress: number[] = [];
  await client.callTool(
    { name: "slow", arguments: { steps: 2 } },
    { onprogress: (one) => progress.push(one.progress) },
  );
  assertProgress(progress, 2);
  await client.close();
});
