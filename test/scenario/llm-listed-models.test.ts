/**
 * `GET /v1/models` with patterns among the configured models: the providers' own lists fill them, filtered by the
 * pattern and by what the client's key may use. The lists are kept for a while, and a provider that fails is left out.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../support/fake-clock.ts";
import { startGateway, type TestGateway, type TestGatewayOptions } from "../support/gateway.ts";

interface Provider {
  readonly host: string;
  readonly calls: { readonly path: string; readonly key: string }[];
  status: number;
  /** Not sent while undefined. */
  body: unknown;
}

const OPENAI = { object: "list", data: [{ id: "gpt-a" }, { id: "gpt-b" }, { id: "whisper-1" }] };

async function startProvider(t: TestContext, body: unknown): Promise<Provider> {
  const server = createServer((request, response) => {
    const { authorization, "x-api-key": plain, "x-goog-api-key": google } = request.headers;
    provider.calls.push({ path: request.url ?? "", key: String(authorization ?? plain ?? google) });
    if (provider.body === undefined) return;
    response.writeHead(provider.status, { "content-type": "application/json" }).end(JSON.stringify(provider.body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const provider: Provider = { host, calls: [], status: 200, body };
  return provider;
}

async function open(
  t: TestContext,
  models: readonly string[],
  policies = "",
  options: TestGatewayOptions = {},
): Promise<TestGateway> {
  const gateway = await startGateway(
    `
gateways: { default: { port: 0 } }
routes:
  - ${policies}
    backends: [{ ai: { models: [${models.join(", ")}] } }]
`,
    options,
  );
  t.after(() => gateway.close());
  return gateway;
}

const model = (name: string, kind: string, { host }: Provider, upstream?: string): string =>
  `{ name: "${name}", provider: ${kind}, params: { hostOverride: "${host}", apiKey: secret${upstream === undefined ? "" : `, model: "${upstream}"`} } }`;

async function listed(gateway: TestGateway, headers: Record<string, string> = {}): Promise<string[]> {
  const response = await fetch(`${gateway.url()}/v1/models`, { headers });
  assert.equal(response.status, 200);
  const { data } = (await response.json()) as { data: { id: string }[] };
  return data.map(({ id }) => id);
}

test("patterns are filled with the lists of OpenAI, Anthropic, and Gemini", async (t) => {
  const openAi = await startProvider(t, OPENAI);
  const anthropic = await startProvider(t, { data: [{ id: "claude-x", type: "model" }], has_more: false });
  const gemini = await startProvider(t, { models: [{ name: "models/gemini-x" }, { name: "models/embed" }] });
  const gateway = await open(t, [
    model("fixed", "openAI", openAi, "gpt-a"),
    model("gpt-*", "openAI", openAi),
    model("mine/*", "openAI", openAi, "*"),
    model("any*", "openAI", openAi, "gpt-a"),
    model("claude-*", "anthropic", anthropic),
    model("google/*", "gemini", gemini, "gemini-*"),
  ]);
  assert.deepEqual(await listed(gateway), [
    ...["fixed", "gpt-a", "gpt-b", "mine/gpt-a", "mine/gpt-b", "mine/whisper-1", "claude-x", "google/x"],
  ]);
  assert.deepEqual(anthropic.calls, [{ path: "/v1/models?limit=1000", key: "secret" }]);
  assert.deepEqual(gemini.calls, [{ path: "/v1beta/models?pageSize=1000", key: "secret" }]);
  assert.deepEqual(openAi.calls[0], { path: "/v1/models", key: "Bearer secret" });
});

test("concurrent and later clients share a list until it expires", async (t) => {
  const clock = fakeClock();
  const provider = await startProvider(t, OPENAI);
  const gateway = await open(t, [model("gpt-*", "openAI", provider)], "", { clock });
  await Promise.all([listed(gateway), listed(gateway), listed(gateway)]);
  await listed(gateway);
  assert.equal(provider.calls.length, 1);
  await clock.advance(5 * 60_000);
  provider.body = { data: [{ id: "gpt-c" }] };
  assert.deepEqual(await listed(gateway), ["gpt-c"]);
  assert.equal(provider.calls.length, 2);
});

test("a provider that fails leaves the configured names and is logged once", async (t) => {
  const clock = fakeClock();
  const provider = await startProvider(t, OPENAI);
  const other = await startProvider(t, { data: [{ id: "o-1" }] });
  provider.status = 500;
  const gateway = await open(
    t,
    [model("fixed", "openAI", provider, "x"), model("gpt-*", "openAI", provider), model("o-*", "openAI", other)],
    "",
    { clock },
  );
  assert.deepEqual(await listed(gateway), ["fixed", "o-1"]);
  await gateway.logged('the provider\'s models are not listed target=gpt-* reason="status 500"');
  await listed(gateway);
  assert.equal(provider.calls.length, 1, "it is not called again at once");
  await clock.advance(60_000);
  await listed(gateway);
  assert.equal(provider.calls.length, 2);
  assert.equal(gateway.log().filter((line) => line.includes("are not listed")).length, 1);
  provider.status = 200;
  await clock.advance(60_000);
  assert.deepEqual(await listed(gateway), ["fixed", "gpt-a", "gpt-b", "o-1"]);
  provider.body = { error: "no list" };
  await clock.advance(5 * 60_000);
  assert.deepEqual(await listed(gateway), ["fixed", "gpt-a", "gpt-b", "o-1"], "the last list is kept");
});

test("a provider that does not respond in time is left out", async (t) => {
  const clock = fakeClock();
  const provider = await startProvider(t, undefined);
  const gateway = await open(t, [model("fixed", "openAI", provider, "x"), model("gpt-*", "openAI", provider)], "", {
    clock,
  });
  const asked = listed(gateway);
  while (provider.calls.length === 0) await new Promise((resolve) => setImmediate(resolve));
  await clock.advance(5_000);
  assert.deepEqual(await asked, ["fixed"]);
});

test("a key sees only the models that it may use", async (t) => {
  const provider = await startProvider(t, OPENAI);
  const policies = `policies: { apiKey: { keys: [{ key: aaaaaaaaaaaaaaaa, models: ["gpt-b", "whisper-*"] }] } }`;
  const gateway = await open(t, [model("*", "openAI", provider)], policies);
  assert.deepEqual(await listed(gateway, { "x-api-key": "aaaaaaaaaaaaaaaa" }), ["gpt-b", "whisper-1"]);
});
