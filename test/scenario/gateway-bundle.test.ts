/**
 * The gateway as it is shipped: bundled and split, with its heavy parts loaded when they are needed. Each of them is
 * needed here once, because the compiled files of the other tests load them in another way.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { startUpstream } from "../support/llm/upstream.ts";
import { startRateLimitService } from "../support/rate-limit-service/service.ts";

async function started(t: TestContext, yaml: string) {
  const gateway = startGatewayProcess(t, ["-f", "-"], { stdin: `config: { adminAddr: "127.0.0.1:0" }\n${yaml}` });
  return { gateway, url: `http://127.0.0.1:${await gateway.port()}` };
}

test("the bundle signs for AWS", async (t) => {
  const upstream = await startUpstream();
  t.after(() => upstream.close());
  const { url } = await started(
    t,
    `
gateways: { default: { port: 0 } }
routes:
  - backends:
      - ai:
          provider: { bedrock: { region: eu-west-1 } }
          auth: { aws: { accessKeyId: AKIDBUNDLE, secretAccessKey: s } }
          hostOverride: "${upstream.host}"
`,
  );
  const body = JSON.stringify({ model: "anthropic.claude", messages: [{ role: "user", content: "hi" }] });
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
  assert.equal(answer.status, 200, await answer.text());
  assert.match(String(upstream.last().headers.authorization), /^AWS4-HMAC-SHA256 Credential=AKIDBUNDLE\//);
});

test("the bundle asks a rate limit service", async (t) => {
  const service = await startRateLimitService([{ entry: "user", limit: 1, unit: "HOUR" }]);
  t.after(() => service.close());
  const { url } = await started(
    t,
    `
gateways: { default: { port: 0 } }
routes:
  - policies:
      rateLimit:
        global:
          host: "${service.host}"
          domain: test
          timeout: 10s
          descriptors: [{ entries: [{ key: user, value: '"ann"' }], type: requests }]
      directResponse: { body: ok }
`,
  );
  assert.deepEqual([(await fetch(url)).status, (await fetch(url)).status], [200, 429]);
});

test("the bundle profiles itself, and answers as the demo LLM", async (t) => {
  const { gateway, url } = await started(
    t,
    `
gateways: { default: { port: 0 } }
routes: [{ backends: [{ ai: { provider: { demo: {} } } }] }]
`,
  );
  const admin = await gateway.adminUrl();
  const profile = await fetch(`${admin}/debug/pprof/profile?seconds=1`);
  assert.equal(profile.status, 200, await profile.text());
  const body = JSON.stringify({ model: "demo", messages: [{ role: "user", content: "hi" }] });
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
  assert.equal(answer.status, 200);
});

test("the bundle starts with a small young generation", async (t) => {
  const { gateway } = await started(
    t,
    "gateways: { default: { port: 0 } }\nroutes: [{ policies: { directResponse: {} } }]",
  );
  const memory = (await (await fetch(`${await gateway.adminUrl()}/memory`)).json()) as {
    heap: { spaces: { name: string; sizeBytes: number }[] };
  };
  const young = memory.heap.spaces.find(({ name }) => name === "new_space");
  assert.ok(young !== undefined && young.sizeBytes <= 4 * 1024 * 1024, JSON.stringify(young));
});
