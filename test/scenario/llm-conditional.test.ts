/**
 * Virtual models that choose by what is asked, by whom and by the price; what fits nothing is rejected by name.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let gateway: TestGateway;
let upstream: TestUpstream;

before(async () => {
  upstream = await startUpstream();
  const rates = (input: string, output: string): object => ({ rates: { input, output } });
  const models = { "gpt-small": rates("1", "9"), "gpt-large": rates("3", "4"), "gpt-tiny": rates("2", "2") };
  const prices = JSON.stringify({ providers: { openai: { models } } });
  const entry = (name: string, model: string): string =>
    `    - { name: ${name}, provider: openAI, params: { model: ${model}, apiKey: k, hostOverride: "${upstream.host}" } }`;
  gateway = await startGateway(
    `
llm:
  port: 0
  modelCatalog: prices.json
  shippedPrices: false
  models:
${entry("small", "gpt-small")}
${entry("large", "gpt-large")}
${entry("tiny", "gpt-tiny")}
${entry("unpriced", "gpt-unpriced")}
${entry("broken", "fail-503")}
  virtualModels:
    - name: smart
      routing:
        conditional:
          targets:
            - { model: large, when: 'request.headers["x-tier"] == "gold"' }
            - { model: small, maxPromptTokens: 200 }
            - { model: tiny, when: "llm.streaming", maxPromptTokens: 100000 }
    - name: by-body
      routing:
        conditional:
          targets:
            - { model: small, when: "default(json(request.body).max_tokens, 1024) <= 1024" }
            - { model: large }
    - { name: cheap, routing: { conditional: { order: cheapest, targets: [{ model: unpriced }, { model: small }, { model: large }] } } }
    - { name: safe, routing: { conditional: { targets: [{ model: broken }, { model: small }] } } }
`,
    { files: { "prices.json": prices } },
  );
});
after(async () => {
  await gateway?.close();
  await upstream.close();
});

async function ask(model: string, extra: object = {}, headers: Record<string, string> = {}) {
  const response = await fetch(`${gateway.url()}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "Hi" }], ...extra }),
  });
  const text = await response.text();
  return { status: response.status, text, asked: response.status === 200 ? upstream.last().body.model : undefined };
}
const long = { messages: [{ role: "user", content: "word ".repeat(2_000) }] };

test("a header, the size of the prompt and the kind of answer choose the model", async () => {
  assert.equal((await ask("smart", {}, { "x-tier": "gold" })).asked, "gpt-large");
  assert.equal((await ask("smart", {}, { "x-tier": "silver" })).asked, "gpt-small");
  assert.equal((await ask("smart")).asked, "gpt-small");
  assert.equal((await ask("smart", { ...long, stream: true })).asked, "gpt-tiny");
  assert.equal((await ask("smart", long, { "x-tier": "gold" })).asked, "gpt-large");
});

test("what meets no condition is rejected, and nobody is asked", async () => {
  const before = upstream.requests.length;
  const { status, text } = await ask("smart", long);
  assert.equal(status, 400);
  assert.match(text, /no_model_fits/);
  assert.equal(upstream.requests.length, before);
});

test("the cheapest model for this call comes first, models without a price last", async () => {
  // By input small is cheaper, by output large is.
  assert.equal((await ask("cheap", { ...long, max_tokens: 10 })).asked, "gpt-small");
  assert.equal((await ask("cheap", { max_tokens: 4_000 })).asked, "gpt-large");
});

test("models that fit stand in for each other", async () => {
  assert.equal((await ask("safe")).asked, "gpt-small");
});

test("a name that is no model, or an expression that is none, is an error of the configuration", async () => {
  const written = (target: string): string => `
llm:
  port: 0
  models: [{ name: a, provider: demo }]
  virtualModels: [{ name: v, routing: { conditional: { targets: [${target}] } } }]
`;
  await assert.rejects(startGateway(written("{ model: nobody }")), /"nobody", which is not among `models`/);
  await assert.rejects(startGateway(written("{ model: a, when: 'request.' }")), /when/);
});

test("a condition can read any field of the body", async () => {
  assert.equal((await ask("by-body")).asked, "gpt-small");
  assert.equal((await ask("by-body", { max_tokens: 1024 })).asked, "gpt-small");
  assert.equal((await ask("by-body", { max_tokens: 4096 })).asked, "gpt-large");
});
