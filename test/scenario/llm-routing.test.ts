/**
 * Models by name, aliases, weights, failover, the list of models, and errors in OpenAI's shape.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let gateway: TestGateway;
let first: TestUpstream;
let second: TestUpstream;

before(async () => {
  first = await startUpstream();
  second = await startUpstream();
  gateway = await startGateway(`
llm:
  port: 0
  models:
    - { name: fast, aliases: [quick], provider: openAI, params: { model: gpt-fast, apiKey: key-1, hostOverride: "${first.host}" } }
    - { name: smart, provider: anthropic, params: { model: claude-smart, apiKey: key-2, baseUrl: "http://${second.host}/v1" } }
    - { name: "team/*", provider: groq, params: { model: "*", apiKey: key-3, baseUrl: "http://${first.host}/openai/v1" } }
    - { name: "local-*", provider: { openAICompatible: { baseUrl: "http://${second.host}/v1" } } }
    - { name: hidden, visibility: internal, provider: demo }
    - { name: down, provider: openAI, params: { hostOverride: "127.0.0.1:1", apiKey: k } }
    - { name: fail-503, provider: openAI, params: { hostOverride: "${first.host}", apiKey: k } }
    - { name: fail-400, provider: openAI, params: { hostOverride: "${first.host}", apiKey: k } }
  virtualModels:
    - { name: mixed, routing: { weighted: { targets: [{ model: fast, weight: 3 }, { model: smart, weight: 1 }] } } }
    - { name: safe, routing: { failover: { targets: [{ model: down, priority: 0 }, { model: fail-503, priority: 1 }, { model: smart, priority: 2 }] } } }
    - { name: strict, routing: { failover: { targets: [{ model: fail-400, priority: 0 }, { model: smart, priority: 1 }] } } }
    - { name: lost, routing: { failover: { targets: [{ model: down, priority: 0 }, { model: fail-503, priority: 1 }] } } }
    - { name: behind, routing: { failover: { targets: [{ model: hidden, priority: 0 }] } } }
`);
});
after(async () => {
  await gateway?.close();
  await first.close();
  await second.close();
});

async function ask(
  body: unknown,
  path = "/v1/chat/completions",
): Promise<{
  status: number;
  body: { model?: string; error?: { message: string; type: string; code: string; param: string } };
}> {
  const response = await fetch(`${gateway.url()}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  return { status: response.status, body: (await response.json()) as never };
}
const chat = (model: string, extra = {}) => ask({ model, messages: [{ role: "user", content: "Hi" }], ...extra });

const routes: [
  asked: string,
  upstream: () => TestUpstream,
  url: string,
  model: string,
  key: [header: string, value: string],
][] = [
  ["fast", () => first, "/v1/chat/completions", "gpt-fast", ["authorization", "Bearer key-1"]],
  ["quick", () => first, "/v1/chat/completions", "gpt-fast", ["authorization", "Bearer key-1"]],
  ["smart", () => second, "/v1/messages", "claude-smart", ["x-api-key", "key-2"]],
  ["team/llama-9", () => first, "/openai/v1/chat/completions", "llama-9", ["authorization", "Bearer key-3"]],
  ["local-phi", () => second, "/v1/chat/completions", "local-phi", ["authorization", ""]],
];
for (const [asked, upstream, url, model, [header, value]] of routes) {
  test(`${asked} goes to ${model} at ${url} with its key`, async () => {
    assert.equal((await chat(asked)).status, 200);
    const sent = upstream().last();
    assert.deepEqual([sent.url, sent.body.model, sent.headers[header] ?? ""], [url, model, value]);
  });
}

for (const model of ["unknown", "hidden", "fas", "fastest", ""]) {
  test(`${JSON.stringify(model)} is not a model here`, async () => {
    const { status, body } = await chat(model);
    assert.equal(status, model === "" ? 400 : 404);
    if (model !== "")
      assert.deepEqual(
        [body.error?.type, body.error?.code, body.error?.param],
        ["invalid_request_error", "model_not_found", "model"],
      );
  });
}

test("a model behind a virtual one answers though it is internal", async () => {
  assert.equal((await chat("behind")).status, 200);
});

test("weights are kept exactly", async () => {
  const before = first.requests.length;
  for (let i = 0; i < 8; i++) await chat("mixed");
  assert.equal(first.requests.length - before, 6);
});

test("connect errors and 5xx move on to the next target, for JSON and streams", async () => {
  for (const stream of [false, true]) {
    const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "safe", stream, messages: [{ role: "user", content: "Hi" }] }),
    });
    assert.equal(response.status, 200);
    assert.match(await response.text(), /claude-smart/);
  }
});

test("a refusal of the request itself does not move on", async () => {
  const { status, body } = await chat("strict");
  assert.equal(status, 400);
  assert.match(body.error?.message ?? "", /canned 400/);
});

test("when all fail, the last answer is the client's", async () => {
  const { status, body } = await chat("lost");
  assert.ok(status === 503 || status === 502, String(status));
  if (status === 503) assert.match(body.error?.message ?? "", /canned 503/);
});

test("the list of models has public names only", async () => {
  const response = await fetch(`${gateway.url()}/v1/models`);
  const { object, data } = (await response.json()) as { object: string; data: { id: string; object: string }[] };
  assert.equal(object, "list");
  const ids = data.map(({ id }) => id);
  for (const id of ["fast", "quick", "smart", "mixed", "safe"]) assert.ok(ids.includes(id), id);
  for (const id of ["hidden", "team/*", "local-*"]) assert.ok(!ids.includes(id), id);
  assert.equal((await fetch(`${gateway.url()}/v1/models/fast`)).status, 200);
  assert.equal((await fetch(`${gateway.url()}/v1/models/nope`)).status, 404);
});

const refused: [name: string, body: unknown, status: number, code: string][] = [
  ["no model", { messages: [] }, 400, "missing_model"],
  ["no JSON", "hello", 400, "invalid_request_body"],
  ["a list", [], 400, "invalid_request_body"],
  ["two models", '{"model":"fast","model":"smart"}', 400, "invalid_request_body"],
  ["a stream that is no boolean", { model: "fast", stream: "yes" }, 400, "invalid_request_body"],
  [
    "what cannot be translated",
    { model: "smart", messages: [{ role: "user", content: [{ type: "input_audio", input_audio: {} }] }] },
    400,
    "unsupported_parameter",
  ],
];
for (const [name, body, status, code] of refused) {
  test(`refuses ${name} in OpenAI's error shape [M1]`, async () => {
    const calls = first.requests.length + second.requests.length;
    const answer = await ask(body);
    assert.deepEqual([answer.status, answer.body.error?.code], [status, code]);
    assert.equal(first.requests.length + second.requests.length, calls);
  });
}

test("refuses a format that the provider does not have, in the client's own shape", async () => {
  const openai = await ask({ model: "smart", input: "x" }, "/v1/embeddings");
  assert.deepEqual([openai.status, openai.body.error?.code], [400, "unsupported_format"]);
  const amazon = await ask({ messages: [] }, "/model/fast/converse");
  assert.equal(amazon.status, 400);
  assert.match(String((amazon.body as { message?: string }).message), /converse format/);
});

test("groups of providers fail over in order", async () => {
  const grouped = await startGateway(`
gateways: { default: { port: 0 } }
routes:
  - backends:
      - ai:
          groups:
            - providers: [{ name: a, provider: { openAI: { model: fail-429 } }, auth: { key: a }, hostOverride: "${first.host}" }]
            - providers: [{ name: b, provider: { anthropic: { model: claude-b } }, auth: { key: b }, hostOverride: "${second.host}" }]
`);
  try {
    const response = await fetch(`${grouped.url()}/v1/chat/completions`, {
      method: "POST",
      body: JSON.stringify({ messages: [{ role: "user", content: "Hi" }] }),
      headers: { "content-type": "application/json" },
    });
    assert.equal(response.status, 200);
    assert.equal(((await response.json()) as { model: string }).model, "claude-b");
    // No key of one provider reaches another.
    assert.equal(second.last().headers["x-api-key"], "b");
    assert.ok(!JSON.stringify(second.last().headers).includes("Bearer a"));
    await grouped.logged("trying the next provider");
  } finally {
    await grouped.close();
  }
});
