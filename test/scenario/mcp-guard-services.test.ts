/**
 * `resultGuard` with moderation services and webhooks: each service against a stand-in of its API, failures, task
 * results, resumed streams, and clients that cancel while a guard decides.
 */
import assert from "node:assert/strict";
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { mcpConfig } from "../support/mcp/gateway-config.ts";
import { startToolsServer, type ToolsServer } from "../support/mcp/tools-server.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

interface Received {
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Json;
}

/** Returns undefined if it answers by itself, later, or not at all. */
type Verdict = (received: Received, response: ServerResponse) => object | undefined;

async function service(t: TestContext, verdict: Verdict): Promise<{ url: string; received: Received[] }> {
  const received: Received[] = [];
  const { host } = await backendFor(t, (request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const one = { url: request.url ?? "", headers: request.headers, body: JSON.parse(text) };
      received.push(one);
      const said = verdict(one, response);
      if (said !== undefined) response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(said));
    });
  });
  return { url: `http://${host}`, received };
}

interface Setup {
  readonly server: ToolsServer;
  readonly client: RawClient;
  readonly gateway: TestGateway;
}

async function setUp(t: TestContext, guard: object, tools: object = {}): Promise<Setup> {
  const server = await startToolsServer([{ name: "read", inputSchema: { type: "object" } }]);
  t.after(() => server.close());
  server.results.read = { content: [{ type: "text", text: "write to ann@corp.example" }] };
  const target = { name: "files", mcp: { url: server.url }, tools: { resultGuard: [guard], ...tools } };
  const gateway = await gatewayFor(t, mcpConfig([target]));
  const client = rawClient(`${gateway.url()}/mcp`);
  await client.initialize();
  return { server, client, gateway };
}

const KEY = { key: "guard-key" };
const rejected = (text: string): object => ({ content: [{ type: "text", text }], isError: true });

test("OpenAI moderation: a flagged result is replaced by the rejection", async (t) => {
  const { url, received } = await service(t, () => ({ results: [{ flagged: true }] }));
  const guard = { openAIModeration: { auth: KEY, baseUrl: `${url}/v1` }, rejection: { body: "blocked" } };
  const { client, gateway } = await setUp(t, guard);
  let result: Json;
  const events = await traceOf(gateway, async () => {
    ({ result } = await client.call("read"));
  });
  assert.deepEqual(result, rejected("blocked"));
  assert.deepEqual(received[0]?.body.input, ["write to ann@corp.example"]);
  assert.equal(received[0]?.headers.authorization, "Bearer guard-key");
  const noted = messagesOf(events, "policyEvent").find(({ kind }) => kind === "resultGuard");
  assert.deepEqual(noted?.details, { result: "rejected" });
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  assert.ok(!dump.includes("guard-key"));
});

test("Bedrock: an anonymized result reaches the client masked, and the call is signed", async (t) => {
  const assessments = [{ sensitiveInformationPolicy: { piiEntities: [{ type: "EMAIL", action: "ANONYMIZED" }] } }];
  const masked = { action: "GUARDRAIL_INTERVENED", outputs: [{ text: "write to {EMAIL}" }], assessments };
  const { url, received } = await service(t, () => masked);
  const bedrockGuardrails = {
    guardrailIdentifier: "g1",
    guardrailVersion: "2",
    region: "us-west-2",
    auth: { aws: { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "secret" } },
    baseUrl: url,
  };
  const { client } = await setUp(t, { bedrockGuardrails });
  assert.deepEqual((await client.call("read")).result.content, [{ type: "text", text: "write to {EMAIL}" }]);
  assert.equal(received[0]?.body.source, "OUTPUT");
  assert.match(received[0]?.headers.authorization ?? "", /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\//);
});

test("Model Armor: a result that matches a filter is rejected", async (t) => {
  const { url, received } = await service(t, () => ({
    sanitizationResult: { filterMatchState: "MATCH_FOUND", invocationResult: "SUCCESS" },
  }));
  const { client } = await setUp(t, {
    googleModelArmor: { templateId: "t", projectId: "p", auth: KEY, baseUrl: url },
  });
  const { result } = await client.call("read");
  assert.deepEqual(result, rejected("The result was rejected due to inappropriate content"));
  assert.match(received[0]?.url ?? "", /:sanitizeModelResponse$/);
});

test("Azure Content Safety: a result is checked as a document for attacks on the model", async (t) => {
  let attackDetected = false;
  const { url, received } = await service(t, () => ({ documentsAnalysis: [{ attackDetected }] }));
  const { client } = await setUp(t, { azureContentSafety: { endpoint: url, detectJailbreak: {}, auth: KEY } });
  assert.equal((await client.call("read")).result.isError, undefined);
  assert.deepEqual(received[0]?.body, { userPrompt: "", documents: ["write to ann@corp.example"] });
  attackDetected = true;
  assert.equal((await client.call("read")).result.isError, true);
});

test("a webhook receives the target, the method, and the tool, and its message replaces the result", async (t) => {
  let said: object = { action: "pass" };
  const { url, received } = await service(t, () => said);
  const { client, server } = await setUp(
    t,
    { webhook: { url, timeout: "60s", headers: { "x-token": "t0ken" } } },
    { override: { read: { name: "open" } } },
  );
  assert.equal((await client.call("open")).result.isError, undefined);
  assert.deepEqual(received[0]?.body, {
    direction: "response",
    texts: ["write to ann@corp.example"],
    mcp: { target: "files", method: "tools/call", tool: "open" },
  });
  assert.equal(received[0]?.headers["x-token"], "t0ken");
  said = { action: "reject", status: 422, message: "no addresses" };
  assert.deepEqual((await client.call("open")).result, rejected("no addresses"));
  server.results.read = { content: [] };
  assert.deepEqual((await client.call("open")).result, { content: [] });
  assert.equal(received.length, 2, "a result without text needs no call");
});

test("several guards run in order after the patterns, each with the output of the previous one", async (t) => {
  const { url, received } = await service(t, ({ body }) => ({
    action: "mask",
    texts: body.texts.map((text: string) => `${text}!`),
  }));
  const webhook = { url, timeout: "60s" };
  const { client } = await setUp(
    t,
    {},
    { resultGuard: [{ webhook }, { regex: { rules: [{ builtin: "email" }] } }, { webhook }] },
  );
  assert.equal((await client.call("read")).result.content[0].text, "write to <EMAIL_ADDRESS>!!");
  assert.deepEqual(
    received.map(({ body }) => body.texts),
    [["write to <EMAIL_ADDRESS>"], ["write to <EMAIL_ADDRESS>!"]],
  );
});

const FAILURES: Readonly<Record<string, Verdict>> = {
  "a status of 500": (_, response) => void response.writeHead(500).end(),
  "no JSON": (_, response) => void response.end("yes"),
  "an unknown action": () => ({ action: "maybe" }),
  "too few texts": () => ({ action: "mask", texts: [] }),
  "a redirect": (_, response) => void response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(),
  "no answer in time": () => undefined,
};
for (const [what, verdict] of Object.entries(FAILURES))
  test(`${what}: closed rejects the result, open passes it`, async (t) => {
    const { url } = await service(t, verdict);
    const closed = await setUp(t, { webhook: { url, timeout: "100ms" } });
    const { result } = await closed.client.call("read");
    assert.deepEqual(result, rejected("the guard of this route could not be asked"));
    const metrics = await (await fetch(`${closed.gateway.adminUrl}/metrics`)).text();
    assert.match(metrics, /gateway_mcp_guard_failures_total\{.*\} 1/);
    assert.match(await closed.gateway.logged("guard failed"), /failureMode/);
    const open = await setUp(t, { webhook: { url, timeout: "100ms", failureMode: "open" } });
    assert.match((await open.client.call("read")).result.content[0].text, /ann@corp/);
  });

test("a service that is unavailable or refuses a text rejects the result", async (t) => {
  const { url } = await service(t, (_, response) => void response.writeHead(400).end("{}"));
  for (const baseUrl of ["http://127.0.0.1:1", url]) {
    const { client } = await setUp(t, {
      openAIModeration: { auth: KEY, baseUrl, ...(baseUrl === url ? { failureMode: "open" } : {}) },
    });
    const { result } = await client.call("read");
    assert.deepEqual(result, rejected("the guard of this route could not be asked"));
  }
});

test("a result that is too large is rejected without a call", async (t) => {
  const { url, received } = await service(t, () => ({ action: "pass" }));
  const { client, server } = await setUp(t, { webhook: { url, timeout: "60s" } });
  server.results.read = { content: [{ type: "text", text: "y".repeat(3_000_000) }] };
  assert.match((await client.call("read")).result.content[0].text, /too large to be checked/);
  assert.equal(received.length, 0);
  server.results.read = { content: [{ type: "text", text: "y".repeat(300_000) }] };
  assert.equal((await client.call("read")).result.content[0].text.length, 300_000);
  assert.equal(received[0]?.body.texts[0].length, 300_000);
});

test("the result of a tool that was called as a task is checked", async (t) => {
  const { url } = await service(t, ({ body }) => ({
    action: body.texts.join().includes("corp.example") ? "reject" : "pass",
  }));
  const { client, server } = await setUp(t, { webhook: { url, timeout: "60s" } });
  server.results["task-1"] = { content: [{ type: "text", text: "ann@corp.example" }] };
  server.results["task-2"] = { status: "completed", result: { content: [{ type: "text", text: "ann@corp.example" }] } };
  for (const taskId of ["task-1", "task-2"]) {
    server.results.read = { task: { taskId, status: "working", ttl: null } };
    assert.equal((await client.call("read")).result.task.taskId, taskId);
  }
  for (const [method, taskId] of [
    ["tasks/result", "task-1"],
    ["tasks/get", "task-2"],
  ] as const) {
    const { result, error } = await client.request(method, { taskId });
    assert.equal(result, undefined, method);
    assert.equal(error.message, "The result was rejected due to inappropriate content", method);
  }
});

/** A webhook whose verdict the test gives later. */
async function slowWebhook(t: TestContext): Promise<{ url: string; asked: Promise<void>; answer(said: object): void }> {
  let answer: (said: object) => void = () => undefined;
  let noted: () => void = () => undefined;
  const asked = new Promise<void>((resolve) => {
    noted = resolve;
  });
  const { url } = await service(t, (_, response) => {
    answer = (said) => response.end(JSON.stringify(said));
    noted();
    return undefined;
  });
  return { url, asked, answer: (said) => answer(said) };
}

const toolCall = { jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "read", arguments: {} } };

test("a client that resumes its stream receives the checked result", async (t) => {
  const { url, asked, answer } = await slowWebhook(t);
  const { client } = await setUp(t, { webhook: { url, timeout: "60s" } });
  const stream = await client.stream(toolCall);
  await asked;
  await eventually("the stream has an event id", () => stream.events.length > 0);
  const id = stream.events[0]?.id ?? "";
  stream.close();
  await stream.ended;
  answer({ action: "mask", texts: ["write to nobody"] });
  const resumed = await client.listen({ "last-event-id": id });
  const { message } = await resumed.next(({ id: own }) => own === 7);
  assert.equal(message.result.content[0].text, "write to nobody");
});

test("a client that cancels while a guard decides receives nothing, and the session goes on", async (t) => {
  const { url, asked, answer } = await slowWebhook(t);
  const { client, server } = await setUp(t, { webhook: { url, timeout: "60s" } });
  const called = client.post(toolCall);
  await asked;
  await client.post({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 7 } });
  answer({ action: "pass" });
  assert.doesNotMatch((await called).text, /corp\.example/);
  server.results.read = { content: [] };
  assert.deepEqual((await client.call("read")).result, { content: [] });
});
