/**
 * `mcpGuardrails`: services inspect, change, and reject MCP requests and results over gRPC, whatever transport, protocol
 * version, or method a client uses.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { ServerCredentials } from "@grpc/grpc-js";
import fc from "fast-check";
import { eventually } from "../support/eventually.ts";
import { assertNothingForbidden, LAYOUTS, onStage, PERMITTED, RULES, SEED } from "../support/mcp/authorization.ts";
import { type Json, LEGACY_HEADERS, openStream, type RawClient, rawClient } from "../support/mcp/client.ts";
import { confusedMessage } from "../support/mcp/confused-messages.ts";
import { mcpConfig, oddTarget } from "../support/mcp/gateway-config.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { PETSTORE } from "../support/mcp/petstore.ts";
import { SECRET, startRecordingServer } from "../support/mcp/recording-server.ts";
import { startTaskServer } from "../support/mcp/task-server.ts";
import { startToolsServer, type ToolsServer } from "../support/mcp/tools-server.ts";
import {
  mutated,
  PASS,
  type PolicyService,
  type ReceivedCheck,
  rejected,
  startPolicyService,
} from "../support/mcp-guardrails/service.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { certificates } from "../support/tls/certificates.ts";

const TOOLS = ["echo", "other"].map((name) => ({ name, inputSchema: { type: "object" } }));

async function serviceFor(t: TestContext, answer?: PolicyService["answer"]): Promise<PolicyService> {
  const service = await startPolicyService(answer);
  t.after(() => service.close());
  return service;
}

async function toolsFor(t: TestContext): Promise<ToolsServer> {
  const server = await startToolsServer(TOOLS);
  t.after(() => server.close());
  return server;
}

function guarded({ host }: PolicyService, methods: object, more: object = {}): object {
  return { mcpGuardrails: { processors: [{ host, methods, timeout: "30s", ...more }] } };
}

interface Setup {
  readonly server: ToolsServer;
  readonly url: string;
  readonly base: string;
  readonly adminUrl: string | undefined;
  readonly client: RawClient;
}

async function setUp(t: TestContext, policies: object, settings: object = {}, names = ["one"]): Promise<Setup> {
  const server = await toolsFor(t);
  const targets = names.map((name) => ({ name, mcp: { url: server.url } }));
  const gateway = await gatewayFor(t, mcpConfig(targets, settings, { policies }));
  const url = `${gateway.url()}/mcp`;
  const client = rawClient(url);
  await client.initialize();
  return { server, url, base: gateway.url(), adminUrl: gateway.adminUrl, client };
}

function seen(service: PolicyService): string[] {
  return service.received.map(({ phase, method, services, body }) => {
    const name = body?.name ?? body?.uri;
    return `${phase} ${method} ${services.join()}${name === undefined ? "" : ` ${name}`}`;
  });
}

const byName = ({ method, body }: ReceivedCheck): Record<string, unknown> => {
  const names = method === "subscriptions/listen" ? (body?.notifications?.resourceSubscriptions ?? []) : [nameIn(body)];
  return names.every((name: unknown) => PERMITTED[method]?.includes(String(name))) ? PASS : rejected("no");
};

function nameIn(body: Json): unknown {
  return body?.name ?? body?.uri ?? body?.ref?.name ?? body?.ref?.uri;
}

const NAMED = Object.fromEntries(Object.keys(PERMITTED).map((method) => [method, "request"]));

for (const layout of LAYOUTS.filter(({ prefixMode }) => prefixMode !== "always")) {
  test(`${layout.name}: no message that a server could read as a rejected call arrives`, async (t) => {
    const service = await serviceFor(t, byName);
    const run = async ({ servers, spell, transports, client, url }: Parameters<Parameters<typeof onStage>[1]>[0]) => {
      const name = spell("name", SECRET.tool);
      assert.deepEqual((await client.call(name)).error, { code: -32001, message: "no" });
      const modern = await modernPost(url, "tools/call", { name });
      assert.deepEqual([modern.status, modern.message.error], [200, { code: -32001, message: "no" }]);
      const last = service.received.at(-1);
      assert.deepEqual([last?.services, last?.body.name], [["t0"], SECRET.tool]);
      const two = [1, 2].map((id) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name } }));
      const batch = await client.post(two);
      assert.equal(batch.messages.filter(({ error }) => error.code === -32001).length, 2);
      for (const { send, close } of await transports()) {
        await fc.assert(
          fc.asyncProperty(confusedMessage(spell), async (text) => {
            await send(text);
            assertNothingForbidden(servers);
          }),
          { numRuns: 40, seed: SEED },
        );
        await close();
        assertNothingForbidden(servers);
      }
      assert.ok(service.received.length > 4, String(service.received.length));
    };
    await onStage(layout, run, RULES, guarded(service, NAMED));
  });
}

test("the services get names of the target, lists once, and all results", async (t) => {
  const service = await serviceFor(t);
  const { client, url } = await setUp(t, guarded(service, { "*": "full" }), {}, ["a", "b"]);
  service.received.length = 0;
  await client.call("b_echo", { x: 1 });
  await client.request("tools/list", { cursor: undefined });
  await modernPost(url, "tools/call", { name: "a_echo" });
  assert.deepEqual(seen(service), [
    "request tools/call b echo",
    "response tools/call b",
    "request tools/list a,b",
    "response tools/list a,b",
    "request tools/call a echo",
    "response tools/call a",
  ]);
  assert.deepEqual(service.received[0]?.body, { name: "echo", arguments: { x: 1 } });
  assert.deepEqual(service.received[1]?.body, { content: [{ type: "text", text: '{"x":1}' }] });
  assert.equal(service.received[2]?.body, undefined);
  assert.deepEqual(
    service.received[3]?.body.tools.map(({ name }: Json) => name),
    ["a_echo", "a_other", "b_echo", "b_other"],
  );
});

test("without prefixes, the service gets the target that has the name", async (t) => {
  const service = await serviceFor(t);
  const { client } = await setUp(t, guarded(service, { "tools/call": "full" }), { prefixMode: "never" }, ["a", "b"]);
  await client.call("other");
  assert.deepEqual(seen(service), ["request tools/call a other", "response tools/call a"]);
});

test("changed parameters and results replace the original ones, big numbers included", async (t) => {
  const service = await serviceFor(t, ({ phase }) =>
    phase === "request"
      ? mutated('{"name":"other","arguments":{"n":12345678901234567890}}')
      : mutated('{"content":[{"type":"text","text":"changed"}],"n":12345678901234567890}'),
  );
  const { client, url, server } = await setUp(t, guarded(service, { "tools/call": "full" }));
  const { text } = await client.post({ jsonrpc: "2.0", id: "x", method: "tools/call", params: { name: "echo" } });
  assert.match(text, /"id":"x","result":\{"content":\[\{"type":"text","text":"changed"\}\],"n":12345678901234567890\}/);
  const modern = await modernPost(url, "tools/call", { name: "echo" }, { meta: { progressToken: "p" } });
  assert.equal(modern.message.result.content[0].text, "changed");
  assert.deepEqual(
    server.calls.map(({ name }) => name),
    ["other", "other"],
  );
});

test("the envelope of a request and its progress token stay as the client sent them", async (t) => {
  const service = await serviceFor(t, ({ body }) =>
    mutated({
      ...body,
      _meta: { progressToken: "forged", "io.modelcontextprotocol/protocolVersion": "1999", more: 1 },
    }),
  );
  const { client, server } = await setUp(t, guarded(service, { "tools/call": "request" }));
  await client.call("echo", {}, { progressToken: 7, own: 2 });
  assert.deepEqual(Object.keys(server.calls[0]._meta).sort(), ["more", "progressToken"]);
  await client.call("echo", {});
  assert.deepEqual(server.calls[1]._meta, { more: 1 });
});

test("authorization rules apply to the changed request", async (t) => {
  for (const prefixMode of ["conditional", "always", "never"]) {
    const service = await serviceFor(t, () => mutated({ name: "other" }));
    const policies = {
      ...guarded(service, { "tools/call": "request" }),
      mcpAuthorization: { rules: ['mcp.tool.name == "echo"'] },
    };
    const names = prefixMode === "conditional" ? ["one"] : ["one", "two"];
    const { client, server } = await setUp(t, policies, { prefixMode }, names);
    const { error } = await client.call(prefixMode === "always" ? "one_echo" : "echo");
    assert.match(error.message, /Unknown tool/, prefixMode);
    assert.deepEqual(server.calls, []);
  }
});

test("services run in order, those of the gateway first, and a rejection ends the request", async (t) => {
  const order: string[] = [];
  const named = (name: string) =>
    serviceFor(t, ({ phase, body }) => {
      order.push(`${name} ${phase}`);
      return phase === "response" ? PASS : mutated({ ...body, arguments: { by: `${body.arguments.by}${name}` } });
    });
  const [a, b, c] = [await named("a"), await named("b"), await named("c")];
  const server = await toolsFor(t);
  const config = JSON.parse(mcpConfig([{ name: "one", mcp: { url: server.url } }], {}, {}));
  const methods = { "tools/call": "full" };
  config.gateways.default.policies = guarded(a, methods);
  config.routes[0].policies = guarded(b, methods);
  config.routes[0].backends[0].policies = guarded(c, methods);
  const gateway = await gatewayFor(t, JSON.stringify(config));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  assert.equal((await client.call("echo", { by: "" })).result.content[0].text, '{"by":"abc"}');
  const phases = ["a request", "b request", "c request", "a response", "b response", "c response"];
  assert.deepEqual(order.splice(0), phases);
  b.answer = () => rejected("stop", 2);
  assert.deepEqual((await client.call("echo", { by: "" })).error, { code: -32003, message: "stop" });
  assert.deepEqual(order, ["a request"]);
});

test("`initialize` and `server/discover` can be rejected, and their results changed", async (t) => {
  for (const settings of [{}, { statefulMode: "stateless" }]) {
    const service = await serviceFor(t, ({ phase, body }) =>
      phase === "request" ? PASS : mutated({ ...body, instructions: "checked" }),
    );
    const { url, base } = await setUp(t, guarded(service, { initialize: "full" }), settings);
    assert.equal((await rawClient(url).initialize()).message.result.instructions, "checked");
    assert.equal((await modernPost(url, "server/discover")).message.result.instructions, "checked");
    for (const phase of ["request", "response"]) {
      service.answer = (check) => (check.phase === phase ? rejected("no") : PASS);
      const { message, status } = await rawClient(url).initialize();
      assert.deepEqual([status, message.error], [200, { code: -32001, message: "no" }], phase);
      assert.equal((await modernPost(url, "server/discover")).message.error.message, "no");
      if ("statefulMode" in settings) continue;
      const old = await openStream(`${base}/sse`, { headers: { accept: "text/event-stream" } });
      await eventually("the endpoint is named", () => old.events.length > 0);
      const endpoint = `${base}${old.events.shift()?.data}`;
      const params = { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "old", version: "1" } };
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params });
      await (await fetch(endpoint, { method: "POST", headers: LEGACY_HEADERS, body })).arrayBuffer();
      assert.equal((await old.next()).message.error.message, "no");
      old.close();
    }
  }
});

test("the result of a task is checked like the call that created it", async (t) => {
  for (const era of ["legacy", "modern"] as const) {
    const service = await serviceFor(t, ({ body }) =>
      JSON.stringify(body).includes("leak") ? rejected("leaks") : PASS,
    );
    const server = await startTaskServer(era);
    t.after(() => server.close());
    const policies = guarded(service, { "tools/call": "response" });
    const gateway = await gatewayFor(t, mcpConfig([{ name: "one", mcp: { url: server.url } }], {}, { policies }));
    const client = rawClient(`${gateway.url()}/mcp`);
    await client.initialize();
    const created = (await client.call("read", { who: "leak" })).result;
    const taskId = created.taskId ?? created.task.taskId;
    for (const method of ["tasks/get", "tasks/result", "tasks/list"])
      assert.equal((await client.request(method, { taskId })).error.message, "leaks", `${era} ${method}`);
  }
});

test("tool search finds only the tools that the service leaves in lists", async (t) => {
  const service = await serviceFor(t, ({ body }) => mutated({ tools: body.tools.slice(0, 1) }));
  const { client } = await setUp(t, guarded(service, { "tools/list": "response" }), { toolMode: "search" });
  assert.equal((await client.request("tools/list")).result.tools.length, 1);
  const found = (await client.call("find_tools", { query: "" })).result.content[0].text;
  assert.equal(found, "- echo");
  service.answer = () => rejected("no");
  for (const name of ["find_tools", "describe_tool"])
    assert.equal((await client.call(name, { query: "", name: "echo" })).error.message, "no");
  assert.equal((await client.request("tools/list")).error.message, "no");
});

test("servers over stdio and HTTP APIs are checked as well", async (t) => {
  const service = await serviceFor(t, ({ phase }) => (phase === "request" ? PASS : rejected("no")));
  const api = await backendFor(t, (_request, response) => response.end('{"id": 1}'));
  const openapi = { file: "api.json", server: `http://${api.host}/v1` };
  const policies = guarded(service, { "tools/call": "full" });
  const gateway = await gatewayFor(t, mcpConfig([oddTarget(), { name: "shop", openapi }], {}, { policies }), {
    files: { "api.json": JSON.stringify(PETSTORE) },
  });
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const tools = (await client.request("tools/list")).result.tools.map(({ name }: Json) => name);
  const pet = tools.find((name: string) => name.startsWith("shop_"));
  for (const name of ["odd_echo", pet])
    assert.equal((await client.call(name, { message: "x", petId: 1 })).error.message, "no", name);
  const phases = service.received.map(({ phase, services }) => `${phase} ${services}`);
  assert.deepEqual(phases, ["request odd", "response odd", "request shop", "response shop"]);
});

test("a resumed response is the checked one", async (t) => {
  const service = await serviceFor(t, () => mutated({ content: [{ type: "text", text: "checked" }] }));
  const policies = guarded(service, { "tools/call": "response" });
  const gateway = await gatewayFor(t, mcpConfig([oddTarget()], {}, { policies }));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const params = { name: "slow", arguments: { ms: 400, steps: 4 }, _meta: { progressToken: 9 } };
  const first = await client.stream({ jsonrpc: "2.0", id: 1, method: "tools/call", params });
  const { event } = await first.next((message) => message.params?.progress === 1);
  first.close();
  await first.ended;
  const again = await client.listen({ "last-event-id": event.id ?? "" });
  const { message } = await again.next((one) => one?.id === 1);
  assert.equal(message.result.content[0].text, "checked");
  again.close();
});

test("unknown methods do not reach a server unless a service gets them", async (t) => {
  const service = await serviceFor(t);
  const { client, server } = await setUp(t, guarded(service, { "tools/call": "full", "custom/*": "request" }));
  const before = server.headers.length;
  assert.equal((await client.request("TOOLS/CALL", { name: "echo" })).error.message, "Method not found: TOOLS/CALL");
  assert.deepEqual([seen(service), server.headers.length], [[], before]);
  await client.request("custom/run", { name: "x" });
  assert.deepEqual(seen(service), ["request custom/run one x"]);
  assert.equal((await client.post({ jsonrpc: "2.0", method: "custom/run", params: {} })).status, 400);
});

const FAILURES: Readonly<Record<string, PolicyService["answer"]>> = {
  "an error": () => "error",
  "no decision": () => ({}),
  "invalid JSON": () => mutated("{"),
  "a list": () => mutated("[]"),
  "too many headers": () => ({
    pass: {},
    headerMutation: { set: Array.from({ length: 200 }, (_, i) => ({ key: `x-${i}`, value: Buffer.from("1") })) },
  }),
};

for (const failureMode of ["closed", "open"]) {
  const effect = failureMode === "open" ? "lets the message pass" : "rejects the message";
  test(`failureMode ${failureMode}: a response that is no decision ${effect}`, async (t) => {
    const service = await serviceFor(t);
    const { client, server } = await setUp(t, guarded(service, { "tools/call": "request" }, { failureMode }));
    for (const [name, answer] of Object.entries(FAILURES)) {
      service.answer = answer;
      const { result, error } = await client.call("echo", { x: 1 });
      if (failureMode === "open") assert.equal(result.content[0].text, '{"x":1}', name);
      else assert.deepEqual(error, { code: -32603, message: "the MCP guardrail service is not available" }, name);
    }
    assert.equal(server.calls.length, failureMode === "open" ? Object.keys(FAILURES).length : 0);
  });
}

test("a service that does not respond in time, or cannot be reached, rejects results too", async (t) => {
  const service = await serviceFor(t, () => "never");
  const { client } = await setUp(t, guarded(service, { "tools/call": "response" }, { timeout: "50ms" }));
  assert.equal((await client.call("echo")).error.code, -32603);
  await service.close();
  assert.equal((await client.call("echo")).error.code, -32603);
});

test("parameters that a client could not send are rejected, also with failureMode open", async (t) => {
  const service = await serviceFor(t);
  const { client, server } = await setUp(t, guarded(service, { "tools/call": "request" }, { failureMode: "open" }));
  for (const params of [{ name: 1 }, { Name: "other", name: "echo" }, {}]) {
    service.answer = () => mutated(params);
    assert.equal((await client.call("echo")).error.code, -32603, JSON.stringify(params));
  }
  assert.deepEqual(server.calls, []);
});

test("the parameters of subscriptions cannot change, because other replicas repeat them", async (t) => {
  const service = await serviceFor(t, () => mutated({ uri: "file:///other" }));
  const server = await startRecordingServer("legacy");
  t.after(() => server.close());
  const policies = guarded(service, { "resources/*": "request" });
  const gateway = await gatewayFor(t, mcpConfig([{ name: "one", mcp: { url: server.url } }], {}, { policies }));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  const subscribe = (): Promise<Json> => client.request("resources/subscribe", { uri: "file:///open" });
  assert.equal((await subscribe()).error.code, -32603);
  assert.ok(!server.received.some(({ body }) => body.includes("resources/subscribe")));
  service.answer = () => PASS;
  assert.ok((await subscribe()).result);
});

test("a call that the client cancels during a check does not reach the server", async (t) => {
  let asked: (() => void) | undefined;
  const isAsked = new Promise<void>((resolve) => {
    asked = resolve;
  });
  const service = await serviceFor(t, () => {
    asked?.();
    return "never";
  });
  const { client, server } = await setUp(t, guarded(service, { "tools/call": "request" }));
  const calling = client.post({ jsonrpc: "2.0", id: 5, method: "tools/call", params: { name: "echo" } });
  await isAsked;
  await client.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 5 } });
  assert.deepEqual((await calling).messages, []);
  service.answer = () => PASS;
  await client.call("echo");
  assert.equal(server.calls.length, 1);
});

test("the service gets the client's headers, not the credential for the backend", async (t) => {
  const service = await serviceFor(t);
  const policies = {
    ...guarded(service, { "tools/call": "request" }, { requestHeaders: { disallowed: ["cookie", ":path"] } }),
    requestHeaderModifier: { set: { "x-added": "by the gateway", authorization: "Bearer backend" } },
  };
  const { client } = await setUp(t, policies);
  const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo" } };
  await client.post(body, { authorization: "Bearer mine", cookie: "a=b", "x-own": "1" });
  const headers = service.received[0]?.headers ?? [];
  for (const line of ["authorization: Bearer mine", "x-own: 1", ":method: POST", ":scheme: http"])
    assert.ok(headers.includes(line), line);
  for (const name of ["cookie", ":path", "x-added", "content-length", "host"])
    assert.ok(!headers.some((line) => line.startsWith(`${name}:`)), name);
});

test("the trace and the metrics show each decision, without contents", async (t) => {
  const service = await serviceFor(t, ({ phase }) => (phase === "request" ? PASS : rejected("leaks")));
  const { client, adminUrl } = await setUp(t, guarded(service, { "tools/call": "full" }));
  const tracing = await fetch(`${adminUrl}/debug/trace`);
  await client.call("echo", { x: "private" });
  const text = await tracing.text();
  assert.match(
    text,
    /"kind":"mcpGuardrails","details":\{"service":"[^"]+","phase":"request","method":"tools\/call","result":"passed"/,
  );
  assert.match(text, /"phase":"response","method":"tools\/call","result":"rejected","code":-32001,"reason":"leaks"/);
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_mcp_guardrails_total\{owner="route tools",result="passed"\} 1/);
  assert.match(metrics, /gateway_mcp_guardrails_total\{owner="route tools",result="rejected"\} 1/);
});

test("rules read the values that a service returns, except in batches", async (t) => {
  const fields = {
    level: { numberValue: 2 },
    who: {
      structValue: { fields: { roles: { listValue: { values: [{ stringValue: "dev" }, { boolValue: true }] } } } },
    },
    none: { nullValue: "NULL_VALUE" },
  };
  const service = await serviceFor(t, ({ body }) =>
    body?.name === "echo" ? { pass: {}, metadata: { fields } } : PASS,
  );
  const rule = 'mcpGuardrails.level < 3 && mcpGuardrails.who.roles == ["dev", true] && mcpGuardrails.none == null';
  const policies = { ...guarded(service, { "tools/call": "request" }), mcpAuthorization: { rules: [rule] } };
  const { client, url, server } = await setUp(t, policies);
  assert.equal((await client.call("echo", { x: 1 })).result.content[0].text, '{"x":1}');
  assert.match((await client.call("other")).error.message, /Unknown tool/);
  fields.level.numberValue = 3;
  assert.match((await client.call("echo")).error.message, /Unknown tool/);
  fields.level.numberValue = 2;
  const old = rawClient(url);
  old.version = "2025-03-26";
  await old.initialize();
  const batch = ["echo", "other"].map((name, id) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name } }));
  assert.ok((await old.post(batch)).messages.every(({ error }) => error !== undefined));
  assert.equal(server.calls.length, 1);
});

test("a service with TLS needs a trusted certificate with the expected name", async (t) => {
  const { key, cert } = certificates.server;
  const pair = [{ private_key: Buffer.from(key), cert_chain: Buffer.from(cert) }];
  const service = await startPolicyService(undefined, ServerCredentials.createSsl(null, pair));
  t.after(() => service.close());
  const server = await toolsFor(t);
  const root = "ca.pem";
  for (const [tls, code] of [
    [{ root, hostname: "backend.test" }, undefined],
    [{ root, hostname: "other.test" }, -32603],
    [{ hostname: "backend.test" }, -32603],
  ] as const) {
    const policies = guarded(service, { "tools/call": "request" }, { tls });
    const gateway = await gatewayFor(t, mcpConfig([{ name: "one", mcp: { url: server.url } }], {}, { policies }), {
      files: { [root]: certificates.root },
    });
    const client = rawClient(`${gateway.url()}/mcp`);
    await client.initialize();
    assert.equal((await client.call("echo")).error?.code, code, JSON.stringify(tls));
  }
  assert.equal(server.calls.length, 1);
});
