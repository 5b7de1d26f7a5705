/**
 * `perMinute` of deployments: what one may not be asked any more goes to the next, and to nobody if there is none.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

async function provider(t: TestContext, status = 200): Promise<{ host: string; calls: () => number }> {
  let calls = 0;
  const { host } = await backendFor(t, (request, response) => {
    calls += 1;
    request.resume().on("end", () => {
      const choices = [{ index: 0, message: { role: "assistant", content: "ok" }, finish_reason: "stop" }];
      const usage = { prompt_tokens: 60, completion_tokens: 40, total_tokens: 100 };
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify({ id: "1", object: "chat.completion", model: "m", choices, usage }));
    });
  });
  return { host, calls: () => calls };
}

const deployment = (host: string, perMinute: string): string =>
  `{ name: m, provider: { openAICompatible: { baseUrl: "http://${host}/v1" } }, params: { perMinute: ${perMinute} } }`;

const yaml = (...models: string[]): string =>
  `config: { adminAddr: "127.0.0.1:0" }\ngateways: { default: { port: 0 } }\nroutes: [{ name: llm, backends: [{ ai: { models: [${models.join(", ")}] } }] }]\n`;

async function ask(gateway: TestGateway): Promise<Response> {
  const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }] }),
  });
  return response;
}

async function statuses(gateway: TestGateway, count: number): Promise<number[]> {
  const all: number[] = [];
  for (let i = 0; i < count; i++) {
    const response = await ask(gateway);
    await response.text();
    all.push(response.status);
  }
  return all;
}

test("requests: the next deployment is asked, then 429 with retry-after, then all are whole again", async (t) => {
  const [one, other] = [await provider(t), await provider(t)];
  const clock = shiftedClock();
  const config = yaml(deployment(one.host, "{ requests: 2 }"), deployment(other.host, "{ requests: 3 }"));
  const gateway = await gatewayFor(t, config, { clock });
  assert.deepEqual(await statuses(gateway, 6), [200, 200, 200, 200, 200, 429]);
  assert.deepEqual([one.calls(), other.calls()], [2, 3]);
  const refused = await ask(gateway);
  assert.equal(refused.headers.get("retry-after"), "60");
  assert.equal(((await refused.json()) as { error: { code: string } }).error.code, "rate_limited");
  assert.equal(await gateway.reload(`${config}# the same\n`), "loaded");
  assert.deepEqual(await statuses(gateway, 1), [429], "a reload gives nothing back");
  clock.advance(60_000);
  assert.deepEqual(await statuses(gateway, 6), [200, 200, 200, 200, 200, 429]);
});

test("tokens: counted as the answers say", async (t) => {
  const one = await provider(t);
  const gateway = await gatewayFor(t, yaml(deployment(one.host, "{ tokens: 250 }")));
  assert.deepEqual(await statuses(gateway, 4), [200, 200, 200, 429]);
});

test("a deployment that failed has used no tokens", async (t) => {
  const [broken, good] = [await provider(t, 500), await provider(t)];
  const gateway = await gatewayFor(
    t,
    yaml(deployment(broken.host, "{ tokens: 1000 }"), deployment(good.host, "{ tokens: 100000 }")),
  );
  assert.deepEqual(await statuses(gateway, 3), [200, 200, 200]);
  const dump = (await (await fetch(`${gateway.adminUrl}/config_dump`)).json()) as {
    backends: { targets?: { tokensThisMinute: number; requestsThisMinute: number }[] }[];
  };
  const [first, second] = dump.backends[0]?.targets ?? [];
  assert.equal(first?.tokensThisMinute, 0);
  assert.equal(second?.tokensThisMinute, 300);
});
