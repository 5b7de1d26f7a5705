/**
 * Spec 7 and 8: global limits. Two gateways share the budgets of one real rate limit service. With
 * RATE_LIMIT_SERVICE=host:port the same tests run against a service given by address (`npm run test:ratelimit-service`),
 * whose configuration stands in examples/limits-global.
 */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { closing, type OnEnd } from "../support/rate-limit-service/closing.ts";
import { type RateLimitService, startRateLimitService } from "../support/rate-limit-service/service.ts";

const external = process.env.RATE_LIMIT_SERVICE;

/** The limits that examples/limits-global configures: 5 requests and 100 tokens per user and hour. */
async function startService(onEnd: OnEnd): Promise<RateLimitService> {
  const service = await startRateLimitService([
    { entry: "user", limit: 5, unit: "HOUR" },
    { entry: "token_user", limit: 100, unit: "HOUR" },
  ]);
  onEnd(service.close);
  return service;
}

async function hostOf(onEnd: OnEnd): Promise<string> {
  return external ?? (await startService(onEnd)).host;
}

function config(backend: string, host: string, more = ""): string {
  const rateLimit = (key: string, type: string): string =>
    `{ global: { host: "${host}", domain: gateway, timeout: 30s, ${more} descriptors: [{ entries: [{ key: ${key}, value: 'request.headers["x-user"]' }], type: ${type} }] } }`;
  return `
gateways: { default: { port: 0 } }
routes:
  - name: web
    backends: [{ host: "${backend}" }]
    policies: { rateLimit: ${rateLimit("user", "requests")} }
  - name: llm
    matches: [{ path: { pathPrefix: /v1 } }]
    backends: [{ ai: { name: test, provider: { openAICompatible: { baseUrl: "http://${backend}/v1" } } } }]
    policies: { rateLimit: ${rateLimit("token_user", "tokens")} }
`;
}

async function replicas(onEnd: OnEnd, host: string, more?: string): Promise<[TestGateway, TestGateway]> {
  const backend = await startBackend((request, response) => {
    request.resume();
    request.on("end", () => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(
        JSON.stringify({
          model: "m",
          choices: [],
          usage: { prompt_tokens: 9, completion_tokens: 30, total_tokens: 39 },
        }),
      );
    });
  });
  onEnd(backend.close);
  const start = async (): Promise<TestGateway> => {
    const gateway = await startGateway(config(backend.host, host, more));
    onEnd(gateway.close);
    return gateway;
  };
  return [await start(), await start()];
}

test("two gateways share a budget of requests exactly [S8-1] [S8-10]", async (t) => {
  const onEnd = closing(t);
  const [one, other] = await replicas(onEnd, await hostOf(onEnd));
  const headers = { "x-user": randomUUID() };
  const results: number[] = [];
  for (let i = 0; i < 4; i++) {
    results.push((await fetch(one.url(), { headers })).status);
    results.push((await fetch(other.url(), { headers })).status);
  }
  assert.deepEqual(results, [200, 200, 200, 200, 200, 429, 429, 429]);
  const another = await fetch(other.url(), { headers: { "x-user": randomUUID() } });
  assert.equal(another.status, 200);
  assert.equal(another.headers.get("x-ratelimit-limit"), "5;w=3600");
  assert.equal(another.headers.get("x-ratelimit-remaining"), "4");
});

test("32 concurrent clients over two gateways get exactly what the budget says", async (t) => {
  const onEnd = closing(t);
  const gateways = await replicas(onEnd, await hostOf(onEnd));
  const headers = { "x-user": randomUUID() };
  const results = await Promise.all(
    Array.from({ length: 32 }, (_, i) => fetch((gateways[i % 2] as TestGateway).url(), { headers })),
  );
  assert.equal(results.filter(({ status }) => status === 200).length, 5);
});

test("two gateways share a budget of tokens [S1-5] [S8-13]", async (t) => {
  const onEnd = closing(t);
  const gateways = await replicas(onEnd, await hostOf(onEnd));
  const user = randomUUID();
  const results: number[] = [];
  for (let i = 0; i < 4; i++) {
    const response = await fetch(`${(gateways[i % 2] as TestGateway).url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "x-user": user, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Say hi." }] }),
    });
    await response.text();
    results.push(response.status);
    // The settlement is not waited for by anybody: give it the time of another user's call.
    await fetch((gateways[i % 2] as TestGateway).url(), { headers: { "x-user": randomUUID() } });
  }
  assert.deepEqual(results, [200, 200, 200, 429]);
});

test("a refusal of the service reads `rate limit exceeded`, or what the service says [S7-3]", {
  skip: external !== undefined,
}, async (t) => {
  const onEnd = closing(t);
  const service = await startService(onEnd);
  const [gateway] = await replicas(onEnd, service.host);
  service.answer = () => ({
    overallCode: "OVER_LIMIT",
    responseHeadersToAdd: [{ key: "x-vendor-ratelimited", value: "true" }],
  });
  const refused = await fetch(gateway.url());
  assert.deepEqual(
    [refused.status, await refused.text(), refused.headers.get("x-vendor-ratelimited")],
    [429, "rate limit exceeded", "true"],
  );
});

test("when the service is away the gateway answers 500, or lets pass, as configured", {
  skip: external !== undefined,
}, async (t) => {
  const onEnd = closing(t);
  const service = await startService(onEnd);
  const [closed] = await replicas(onEnd, service.host);
  const [open] = await replicas(onEnd, service.host, "failureMode: open,");
  assert.equal((await fetch(closed.url())).status, 200);
  await service.close();
  const refused = await fetch(closed.url());
  assert.deepEqual([refused.status, await refused.text()], [500, "rate limit service unavailable"]);
  assert.equal((await fetch(open.url())).status, 200);
  await closed.logged("the rate limit service did not respond");
});

test("a request that a local limit refuses is not counted by the service of an outer scope", {
  skip: external !== undefined,
}, async (t) => {
  const onEnd = closing(t);
  const service = await startService(onEnd);
  const backend = await startBackend();
  onEnd(backend.close);
  const gateway = await startGateway(`
gateways:
  default:
    port: 0
    policies:
      rateLimit: { global: { host: "${service.host}", domain: gateway, timeout: 30s, descriptors: [{ entries: [{ key: user, value: '"u"' }] }] } }
routes:
  - backends: [{ host: "${backend.host}" }]
    policies: { rateLimit: { local: [{ requests: 1, unit: Hours }] } }
`);
  onEnd(gateway.close);
  const statuses: number[] = [];
  for (let i = 0; i < 4; i++) statuses.push((await fetch(gateway.url())).status);
  assert.deepEqual(statuses, [200, 429, 429, 429]);
  assert.equal(service.calls.length, 1);
});
