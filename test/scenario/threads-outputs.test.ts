/**
 * Outputs that exist once per process work with several threads as with one: the audit file, OTLP, the store in a
 * folder, and the request history.
 */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { DEMO_TARGET } from "../support/identity/protected-gateway.ts";
import { rawClient } from "../support/mcp/client.ts";
import { type OtlpCollector, startCollector } from "../support/otlp/collector.ts";
import { backendFor } from "../support/scenario.ts";
import { startThreaded, type ThreadedGateway, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const node = threadingNode();
const skip = node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false;
const newer = node ?? "";
const CONNECTIONS = 40;
const TOKENS_PER_CALL = 100;

const MODELS = `
  - gateways: [main]
    name: models
    matches: [{ path: { pathPrefix: /v1 } }]
    backends: [{ ai: { name: demo, provider: { demo: {} } } }]
`;
const TOOLS = `
  - gateways: [main]
    name: tools
    matches: [{ path: { pathPrefix: /mcp } }]
    backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
`;

function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "gateway-threads-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Sends chats over as many connections at once, so that all threads serve some of them. */
async function chats(
  gateway: ThreadedGateway,
  count: number,
  headers: Readonly<Record<string, string>> = {},
): Promise<number[]> {
  const statuses: number[] = [];
  for (let i = 0; i < count; i += CONNECTIONS) {
    const batch = Array.from({ length: Math.min(CONNECTIONS, count - i) }, async (_, n) => {
      const response = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json", "x-request-id": `chat-${i + n}`, ...headers },
        body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hello" }] }),
      });
      await response.arrayBuffer();
      statuses.push(response.status);
    });
    await Promise.all(batch);
  }
  return statuses;
}

/** SIGINT closes idle connections at once. */
async function stop({ process: { child, exited } }: ThreadedGateway): Promise<void> {
  child.kill("SIGINT");
  assert.equal((await exited).code, 0);
}

const threadsOf = (gateway: ThreadedGateway): Promise<number> =>
  gateway.json<{ threads?: object[] }>("/memory").then(({ threads }) => threads?.length ?? 1);

interface AuditRecord {
  readonly kind: string;
  readonly id: string;
  readonly recordId: string;
  readonly name?: string;
}

const auditRecords = (path: string): AuditRecord[] =>
  readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as AuditRecord);

const otlpSettings = (collector: OtlpCollector): string =>
  `  telemetry: { otlp: { endpoint: "${collector.httpUrl}", signals: [traces, metrics, logs], metricsInterval: 1s } }`;

function requestCount(collector: OtlpCollector): number {
  const points: { asDouble: number }[] = collector.metrics().get("gateway_requests_total")?.sum.dataPoints ?? [];
  return points.reduce((sum, { asDouble }) => sum + asDouble, 0);
}

for (const threads of [1, 2, 4]) {
  test(`${threads} threads: the audit file and the collector receive each request once`, { skip }, async (t) => {
    const file = join(temporaryFolder(t), "audit.log");
    const collector = await startCollector();
    t.after(() => collector.close());
    const settings = `${otlpSettings(collector)}
  audit: { file: { path: "${file}" }, otlp: true }`;
    const gateway = await startThreaded(t, threadedConfig(threads, MODELS + TOOLS, settings), newer);
    assert.equal(await threadsOf(gateway), threads);
    assert.deepEqual(new Set(await chats(gateway, 120)), new Set([200]));
    const client = rawClient(`${gateway.url}/mcp`);
    await client.initialize();
    await client.call("echo", { message: "hi" });
    const counted = Number(/^gateway_audit_records_total (\d+)$/m.exec(await gateway.admin("/metrics"))?.[1]);
    await stop(gateway);

    const records = auditRecords(file);
    const llm = records.filter(({ kind }) => kind === "llm");
    assert.equal(new Set(llm.map(({ id }) => id)).size, 120);
    assert.equal(new Set(llm.map(({ recordId }) => recordId)).size, 120);
    assert.deepEqual([llm.length, records.length, counted], [120, 121, 121]);
    assert.equal(records.find(({ kind }) => kind === "mcp")?.name, "echo");

    const spans = collector.spans().filter(({ kind, name }) => kind === "SERVER" && name === "POST models");
    assert.equal(new Set(spans.map(({ traceId }) => traceId)).size, 120);
    assert.equal(spans.length, 120);
    const logs = collector.logs();
    assert.equal(logs.filter(({ body }) => body === "audit").length, 121);
    assert.equal(
      logs.filter(({ body, attributes }) => body === "request" && attributes.route === "models").length,
      120,
    );
    // The session's first requests are counted too.
    assert.equal(requestCount(collector), logs.filter(({ body }) => body === "request").length);
    const instances = collector.received.map(
      ({ message }) => JSON.stringify(message).match(/service\.instance\.id.*?\}/)?.[0],
    );
    assert.equal(new Set(instances).size, 1);
  });
}

test("exported counters do not decrease when a thread dies, and its records stay", { skip }, async (t) => {
  const file = join(temporaryFolder(t), "audit.log");
  const collector = await startCollector();
  t.after(() => collector.close());
  const settings = `${otlpSettings(collector)}
  audit: { file: { path: "${file}" } }`;
  const gateway = await startThreaded(t, threadedConfig(2, MODELS, settings), newer);
  await chats(gateway, 40);
  await eventually("the metrics of both threads are exported", () => requestCount(collector) === 40);
  gateway.process.child.kill("SIGWINCH");
  await gateway.process.logged("worker thread replaced");
  await chats(gateway, 40);
  await stop(gateway);
  assert.equal(requestCount(collector), 80);
  assert.equal(auditRecords(file).length, 80);
});

for (const threads of [1, 2]) {
  test(`${threads} threads: calls are rejected while a required audit file cannot be written`, {
    skip,
  }, async (t) => {
    const folder = join(temporaryFolder(t), "logs");
    mkdirSync(folder);
    const settings = `  audit: { file: { path: "${join(folder, "audit.log")}" }, required: true }`;
    const gateway = await startThreaded(t, threadedConfig(threads, MODELS, settings), newer);
    renameSync(folder, `${folder}-away`);
    // Calls are rejected from the first failed write.
    await chats(gateway, 1);
    await gateway.process.logged("audit file cannot be written");
    assert.deepEqual(new Set(await chats(gateway, CONNECTIONS)), new Set([503]));
    renameSync(`${folder}-away`, folder);
    await gateway.process.logged("audit file can be written again");
    assert.deepEqual(new Set(await chats(gateway, CONNECTIONS)), new Set([200]));
    await stop(gateway);
  });
}

for (const threads of [1, 2]) {
  test(`${threads} threads: keys, budgets and sessions in a folder survive a restart`, { skip }, async (t) => {
    const folder = join(temporaryFolder(t), "store");
    const { host } = await backendFor(t, (request, response) => {
      const choices = [{ index: 0, message: { role: "assistant", content: "ok" }, finish_reason: "stop" }];
      const usage = { prompt_tokens: 60, completion_tokens: 40, total_tokens: TOKENS_PER_CALL };
      request.resume().on("end", () => {
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ id: "1", object: "chat.completion", model: "m", choices, usage }));
      });
    });
    const routes = `${TOOLS}
  - gateways: [main]
    name: models
    matches: [{ path: { pathPrefix: /v1 } }]
    backends: [{ ai: { provider: { openAICompatible: { baseUrl: "http://${host}/v1" } } } }]
    policies:
      apiKey: { stored: true }
      budgets: { limits: [{ name: all, tokens: 1000000, per: month }] }
`;
    const config = threadedConfig(threads, routes, `  store: { folder: "${folder}" }`);
    const before = await startThreaded(t, config, newer);
    assert.equal(await threadsOf(before), threads);
    const body = JSON.stringify({ make: { name: "app" } });
    const { key } = (await (await fetch(`${before.adminUrl}/keys`, { method: "POST", body })).json()) as {
      key: string;
    };
    const headers = { authorization: `Bearer ${key}` };
    assert.deepEqual(new Set(await chats(before, CONNECTIONS, headers)), new Set([200]));
    const total = CONNECTIONS * TOKENS_PER_CALL;
    await eventually("all calls are charged", async () => (await spent(before)) === total);
    const client = rawClient(`${before.url}/mcp`);
    await client.initialize();
    await client.call("echo", { message: "hi" });
    await stop(before);

    const after = await startThreaded(t, config, newer);
    assert.equal(await spent(after), total);
    assert.deepEqual(new Set(await chats(after, CONNECTIONS, headers)), new Set([200]));
    const again = rawClient(`${after.url}/mcp`);
    again.sessionId = client.sessionId;
    assert.equal((await again.call("echo", { message: "again" })).result.content[0].text, "again");
    await stop(after);
  });
}

for (const threads of [1, 2]) {
  test(`${threads} threads: the history has each request once`, { skip }, async (t) => {
    const settings = `  history: { folder: "${temporaryFolder(t)}" }`;
    const gateway = await startThreaded(t, threadedConfig(threads, MODELS, settings), newer);
    await chats(gateway, 120);
    await eventually("all requests are stored", async () => {
      const { stored } = await gateway.json<{ stored: { rows: number } | null }>("/debug/usage/status");
      return stored?.rows === 120;
    });
    await stop(gateway);
  });
}

async function spent(gateway: ThreadedGateway): Promise<number> {
  const { budgets } = await gateway.json<{ budgets: { keys: { spent: number }[] }[] }>("/debug/budgets");
  return budgets[0]?.keys[0]?.spent ?? 0;
}
