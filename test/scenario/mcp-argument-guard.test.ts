/**
 * `argumentGuard`: patterns, webhooks, and shadow mode on the arguments of tool calls, before the server receives them.
 */
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { startToolsServer, type ToolsServer } from "../support/mcp/tools-server.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

interface Setup {
  readonly server: ToolsServer;
  readonly client: RawClient;
  readonly gateway: TestGateway;
}

async function setUp(t: TestContext, argumentGuard: readonly object[], tools: object = {}): Promise<Setup> {
  const server = await startToolsServer([{ name: "write", inputSchema: { type: "object" } }]);
  t.after(() => server.close());
  const target = { name: "files", mcp: { url: server.url }, tools: { argumentGuard, ...tools } };
  const gateway = await gatewayFor(t, mcpConfig([target]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  return { server, client, gateway };
}

/** `verdict` returns undefined if it answers later or not at all. */
async function webhookFor(
  t: TestContext,
  verdict: (body: Json, response: ServerResponse) => object | undefined,
): Promise<{ url: string; received: Json[] }> {
  const received: Json[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const body = JSON.parse(text);
      received.push(body);
      const said = verdict(body, response);
      if (said !== undefined) response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(said));
    });
  });
  return { url: `http://${host}`, received };
}

const EMAIL = { regex: { rules: [{ builtin: "email" }] } };

test("patterns mask arguments, and values of the configuration are not checked", async (t) => {
  const { server, client } = await setUp(t, [EMAIL], {
    override: { write: { name: "save", arguments: { from: { value: "bot@corp.example" } } } },
  });
  await client.call("save", {
    to: ["ann@corp.example"],
    "bob@corp.example": 1,
  });
  assert.deepEqual(server.calls, [
    {
      name: "write",
      arguments: {
        to: ["<EMAIL_ADDRESS>"],
        "<EMAIL_ADDRESS>": 1,
        from: "bot@corp.example",
      },
    },
  ]);
  await client.request("tools/call", { name: "save" });
  assert.deepEqual(server.calls[1]?.arguments, { from: "bot@corp.example" });
});

test("a rejected call does not reach the server, and the records have the reason", async (t) => {
  const rejection = { body: "no secrets" };
  const rules = [{ pattern: "(?i)top secret" }];
  const { server, client, gateway } = await setUp(t, [{ regex: { action: "reject", rules }, rejection }]);
  let message: Json;
  const events = await traceOf(gateway, async () => {
    message = await client.call("write", { note: { text: "Top secret" } });
  });
  assert.deepEqual(message.error, { code: -32602, message: "no secrets" });
  assert.equal(server.calls.length, 0);
  const noted = messagesOf(events, "policyEvent").find(({ kind }) => kind === "argumentGuard");
  assert.deepEqual(noted?.details, { result: "rejected" });
  assert.match(
    await (await fetch(`${gateway.adminUrl}/metrics`)).text(),
    /gateway_mcp_results_total\{[^}]*outcome="denied"\} 1/,
  );
  assert.match((await client.call("write", { note: "y".repeat(2_200_000) })).error.message, /too large to be checked/);
  assert.equal((await client.call("write", { note: "open" })).error, undefined);
  assert.equal(server.calls.length, 1);
});

test("a webhook passes, masks, or rejects arguments after the patterns", async (t) => {
  let said: object = { action: "pass" };
  const { url, received } = await webhookFor(t, () => said);
  const { server, client } = await setUp(t, [{ webhook: { url, timeout: "60s" } }, EMAIL]);
  await client.call("write", { to: "ann@corp.example" });
  assert.deepEqual(received[0], {
    direction: "request",
    texts: ["to", "<EMAIL_ADDRESS>"],
    mcp: { target: "files", method: "tools/call", tool: "write" },
  });
  said = { action: "mask", texts: ["to", "nobody"] };
  await client.call("write", { to: "ann@corp.example" });
  assert.deepEqual(
    server.calls.map((one) => one.arguments),
    [{ to: "<EMAIL_ADDRESS>" }, { to: "nobody" }],
  );
  said = { action: "reject", message: "not this" };
  assert.equal((await client.call("write", { to: "x" })).error.message, "not this");
  await client.call("write", {});
  assert.deepEqual([received.length, server.calls.length], [3, 3], "a call without text needs no check");
});

test("a webhook that fails rejects the call, unless failureMode is open", async (t) => {
  const { url } = await webhookFor(t, (_, response) => void response.writeHead(500).end());
  const closed = await setUp(t, [{ webhook: { url } }]);
  const { error } = await closed.client.call("write", { note: "a" });
  assert.equal(error.message, "the guard of this route could not be asked");
  assert.equal(closed.server.calls.length, 0);
  const open = await setUp(t, [{ webhook: { url, failureMode: "open" } }]);
  assert.equal((await open.client.call("write", { note: "a" })).error, undefined);
});

test("a call that is canceled while a guard decides does not reach the server", async (t) => {
  let answer: () => void = () => undefined;
  let noted: () => void = () => undefined;
  const asked = new Promise<void>((resolve) => {
    noted = resolve;
  });
  const { url } = await webhookFor(t, ({ texts }, response) => {
    if (texts.includes("second")) return { action: "pass" };
    answer = () => response.end(JSON.stringify({ action: "pass" }));
    noted();
    return undefined;
  });
  const { server, client } = await setUp(t, [{ webhook: { url, timeout: "60s" } }]);
  const params = { name: "write", arguments: { note: "first" } };
  const called = client.post({ jsonrpc: "2.0", id: 7, method: "tools/call", params });
  await asked;
  await client.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 7 } });
  await called;
  answer();
  await client.call("write", { note: "second" });
  assert.deepEqual(
    server.calls.map((one) => one.arguments.note),
    ["second"],
  );
});

test("argument guards in shadow mode change nothing, and the shadow report has what they would do", async (t) => {
  const { server, client, gateway } = await setUp(t, [{ ...EMAIL, mode: "shadow" }]);
  await client.call("write", { to: "ann@corp.example" });
  assert.deepEqual(server.calls[0]?.arguments, { to: "ann@corp.example" });
  let rules: { policy: string; rule: string; denied: number }[] = [];
  await eventually("it is in the report", async () => {
    ({ rules } = (await (await fetch(`${gateway.adminUrl}/debug/shadow`)).json()) as { rules: typeof rules });
    return rules.length === 1;
  });
  assert.deepEqual([rules[0]?.policy, rules[0]?.rule, rules[0]?.denied], ["mcp", "argumentGuard: email", 1]);
});

const CARD = { builtin: "creditCard" };

for (const spelling of ["4111111111111111", "4.111111111111111e15", "4111111111111111.0", "41111111111111110e-1"]) {
  test(`a card number that is a JSON number is guarded: ${spelling}`, async (t) => {
    const masking = await setUp(t, [{ regex: { action: "mask", rules: [CARD] } }]);
    const rejecting = await setUp(t, [{ regex: { action: "reject", rules: [CARD] } }]);
    const body = (at: string): string =>
      `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"write","arguments":${at}}}`;
    for (const at of [`{"n":${spelling}}`, `{"a":[1,{"n": ${spelling} }],"text":"x"}`]) {
      await masking.client.post(body(at));
      assert.match(JSON.stringify(masking.server.calls.at(-1)?.arguments), /"n":"<CREDIT_CARD>/);
      const { message } = await rejecting.client.post(body(at));
      assert.equal(message.error.code, -32602, JSON.stringify(message));
    }
    await masking.client.post(body('{"n":1234567,"ok":true,"small":-1.5}'));
    assert.deepEqual(masking.server.calls.at(-1)?.arguments, { n: 1234567, ok: true, small: -1.5 });
    assert.equal(rejecting.server.calls.length, 0);
  });
}
