/**
 * Budgets that outlive and span processes: two replicas on one Redis, `kill -9` with a folder, Redis that goes away, and
 * several threads. The processes are real, and so is Redis.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";
import { skipWithoutRedis, startRedis } from "../support/store/redis-server.ts";
import { startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const skip = skipWithoutRedis;
const TOKENS_PER_CALL = 100;

interface Provider {
  readonly host: string;
  readonly calls: () => number;
  /** The most calls that were open at once. */
  readonly mostOpen: () => number;
}

/** Holds each answer for a moment, so that calls overlap. */
async function provider(t: TestContext): Promise<Provider> {
  let calls = 0;
  let open = 0;
  let mostOpen = 0;
  const { host } = await backendFor(t, (request, response) => {
    calls += 1;
    open += 1;
    mostOpen = Math.max(mostOpen, open);
    request.resume().on("end", () =>
      setImmediate(() => {
        open -= 1;
        const choices = [{ index: 0, message: { role: "assistant", content: "ok" }, finish_reason: "stop" }];
        const usage = { prompt_tokens: 60, completion_tokens: 40, total_tokens: TOKENS_PER_CALL };
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify({ id: "1", object: "chat.completion", model: "m", choices, usage }));
      }),
    );
  });
  return { host, calls: () => calls, mostOpen: () => mostOpen };
}

const routeTo = (host: string, tokens: number, more = ""): string => `
  - name: llm
    backends: [{ ai: { provider: { openAICompatible: { baseUrl: "http://${host}/v1" } } } }]
    policies: { budgets: { limits: [{ name: all, tokens: ${tokens}, per: month${more} }] } }
`;

async function ask(url: string): Promise<number> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }], max_tokens: 40 }),
  });
  await response.text();
  return response.status;
}

async function spent(adminUrl: string): Promise<number> {
  const answer = await fetch(`${adminUrl}/debug/budgets`);
  const { budgets } = (await answer.json()) as { budgets: { keys: { spent: number }[] }[] };
  return budgets[0]?.keys[0]?.spent ?? 0;
}

test("two replicas on Redis exceed a budget by no more than the calls in flight, and count every token", {
  skip,
}, async (t) => {
  const redis = await startRedis();
  t.after(redis.close);
  const behind = await provider(t);
  const yaml = `config: { adminAddr: "127.0.0.1:0", store: { redis: "${redis.url}", timeout: 20s } }\ngateways: { default: { port: 0 } }\nroutes:${routeTo(behind.host, 2000)}`;
  const replicas = [await gatewayFor(t, yaml), await gatewayFor(t, yaml)];
  const statuses: number[] = [];
  const clients = Array.from({ length: 8 }, async (_, i) => {
    for (let n = 0; n < 10; n++) statuses.push(await ask(replicas[i % 2]?.url() ?? ""));
  });
  await Promise.all(clients);
  const passed = statuses.filter((status) => status === 200).length;
  assert.equal(passed, behind.calls());
  assert.equal(statuses.filter((status) => status === 429).length, statuses.length - passed);
  await eventually(
    "all is settled",
    async () => (await spent(replicas[0]?.adminUrl ?? "")) === passed * TOKENS_PER_CALL,
  );
  assert.equal(await spent(replicas[1]?.adminUrl ?? ""), passed * TOKENS_PER_CALL);
  const over = passed * TOKENS_PER_CALL - 2000;
  // Each client has one call in flight; the first that found the budget used up was refused.
  assert.ok(over >= 0 && over <= (clients.length - 1) * TOKENS_PER_CALL, `${over} over`);
});

test("with reserveOutput two replicas never exceed it at all", { skip }, async (t) => {
  const redis = await startRedis();
  t.after(redis.close);
  const behind = await provider(t);
  // The estimate of the question may be less than the provider counts: the budget is a multiple of calls of 100.
  const yaml = `config: { adminAddr: "127.0.0.1:0", store: { redis: "${redis.url}", timeout: 20s } }\ngateways: { default: { port: 0 } }\nroutes:${routeTo(behind.host, 1000, ", reserveOutput: true")}`;
  const replicas = [await gatewayFor(t, yaml), await gatewayFor(t, yaml)];
  for (let n = 0; n < 15; n++) await ask(replicas[n % 2]?.url() ?? "");
  await eventually(
    "settled",
    async () => (await spent(replicas[0]?.adminUrl ?? "")) === behind.calls() * TOKENS_PER_CALL,
  );
  assert.ok(behind.calls() * TOKENS_PER_CALL <= 1000, `${behind.calls()} calls`);
});

test("while Redis is away calls are refused; with failureMode open they pass and are counted when it is back", {
  skip,
}, async (t) => {
  const redis = await startRedis();
  t.after(redis.close);
  const behind = await provider(t);
  const config = (mode: string): string =>
    `config: { adminAddr: "127.0.0.1:0", store: { redis: "${redis.url}", timeout: 20s } }\ngateways: { default: { port: 0 } }\nroutes:${routeTo(behind.host, 1000).replace("limits:", `failureMode: ${mode}, limits:`)}`;
  const closed = await gatewayFor(t, config("closed"));
  const open = await gatewayFor(t, config("open"));
  assert.equal(await ask(open.url()), 200);
  // A call is charged after its answer: a charge that Redis never saw would be counted later, beside the second one.
  await eventually("charged", async () => (await spent(open.adminUrl)) === TOKENS_PER_CALL);
  await redis.stop();
  for (const { adminUrl } of [closed, open])
    await eventually("degraded", async () =>
      (await (await fetch(`${adminUrl}/metrics`)).text()).includes('gateway_store_up{kind="redis"} 0'),
    );
  assert.equal(await ask(closed.url()), 503);
  assert.equal(await ask(open.url()), 200);
  const readiness = async (adminUrl: string): Promise<string> => {
    const answer = await fetch(`${adminUrl}/healthz/ready`);
    return `${answer.status} ${(await answer.text()).trimEnd()}`;
  };
  assert.equal(await readiness(closed.adminUrl), "503 not ready, pending: store");
  assert.equal(await readiness(open.adminUrl), "200 ready");
  await redis.start();
  await eventually("ready again", async () => (await readiness(closed.adminUrl)) === "200 ready");
  // What was in Redis is gone with it (it keeps no file here); what waited is not.
  await eventually("counted", async () => (await spent(open.adminUrl).catch(() => 0)) === TOKENS_PER_CALL);
});

test("kill -9: a folder keeps what was spent", async (t) => {
  const behind = await provider(t);
  const folder = mkdtempSync(join(tmpdir(), "budgets-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = configFile(
    t,
    `config: { adminAddr: "127.0.0.1:0", store: { folder: "${folder}" } }\ngateways: { default: { port: 0 } }\nroutes:${routeTo(behind.host, 100_000)}`,
  );
  const first = startGatewayProcess(t, ["-f", file]);
  const url = `http://127.0.0.1:${await first.port()}`;
  for (let n = 0; n < 20; n++) assert.equal(await ask(url), 200);
  first.child.kill("SIGKILL");
  await first.exited;
  const second = startGatewayProcess(t, ["-f", file]);
  await second.port();
  const kept = await spent(await second.adminUrl());
  // The last call had ended an instant before.
  assert.ok(kept > 19 * TOKENS_PER_CALL && kept <= 20 * TOKENS_PER_CALL, `${kept}`);
});

test("kill -9 in the middle of a stream: what was charged a second ago is kept", async (t) => {
  const word = (content: string): string =>
    `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", model: "m", choices: [{ index: 0, delta: { content } }] })}\n\n`;
  let goOn: () => void = () => undefined;
  const { host } = await backendFor(t, (request, response) => {
    request.resume();
    response.on("error", () => undefined);
    response.writeHead(200, { "content-type": "text/event-stream" });
    goOn = () => void response.write(word("one two three four five six seven eight nine ten ".repeat(20)));
    goOn();
  });
  const folder = mkdtempSync(join(tmpdir(), "budgets-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const file = configFile(
    t,
    `config: { adminAddr: "127.0.0.1:0", store: { folder: "${folder}" } }\ngateways: { default: { port: 0 } }\nroutes:${routeTo(host, 100_000)}`,
  );
  const first = startGatewayProcess(t, ["-f", file]);
  const body = JSON.stringify({ model: "m", stream: true, messages: [{ role: "user", content: "hi" }] });
  const stream = await fetch(`http://127.0.0.1:${await first.port()}/v1/chat/completions`, { method: "POST", body });
  const reader = stream.body?.getReader();
  await reader?.read();
  const admin = await first.adminUrl();
  await eventually("charged while it runs", async () => (await spent(admin)) > 150);
  const charged = await spent(admin);
  goOn();
  // One charge per second: when the next is there, the one before is older than a second.
  await eventually("charged again", async () => (await spent(admin)) > charged);
  first.child.kill("SIGKILL");
  await first.exited;
  await reader?.closed.catch(() => undefined);
  const second = startGatewayProcess(t, ["-f", file]);
  await second.port();
  const kept = await spent(await second.adminUrl());
  assert.ok(kept >= charged, `${kept} of ${charged}`);
});

const node = threadingNode();

test("several threads share one budget in memory", {
  skip: node === undefined && "no Node with threads",
}, async (t) => {
  const behind = await provider(t);
  const gateway = await startThreaded(t, threadedConfig(2, routeTo(behind.host, 500)), node ?? "");
  const statuses: number[] = [];
  // Connections of their own, so that both threads get some.
  for (let n = 0; n < 20; n++) {
    statuses.push(await ask(gateway.url));
    await eventually("settled", async () => (await spent(gateway.adminUrl)) % TOKENS_PER_CALL === 0);
  }
  assert.equal(statuses.filter((status) => status === 200).length, 5, statuses.join(" "));
});
