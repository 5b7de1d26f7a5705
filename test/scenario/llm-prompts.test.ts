/**
 * The `ai` policy through a running gateway: defaults, overrides, prompts, aliases, guards in both directions, costs.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";

let upstream: TestUpstream;
let gateway: TestGateway;

before(async () => {
  upstream = await startUpstream();
  const backend = (provider: string, extra = ""): string =>
    `backends: [{ ai: { provider: { ${provider}: {} }, auth: { key: k }, hostOverride: "${upstream.host}"${extra} } }]`;
  gateway = await startGateway(
    `
config: { logging: { format: json } }
gateways: { default: { port: 0 }, computed: { port: 0 }, claude: { port: 0 }, guarded: { port: 0 }, refusing: { port: 0 }, costs: { port: 0 } }
routes:
  - name: edits
    gateways: default
    ${backend("openAI")}
    policies:
      ai:
        defaults: { temperature: 0.1, model: default-model }
        overrides: { max_tokens: 100 }
        prompts: { prepend: [{ role: system, content: Be kind. }], append: [{ role: user, content: Answer in French. }] }
        modelAliases: { gpt: gpt-real, "old-*": "new-*" }
  - name: computed
    gateways: computed
    ${backend("openAI")}
    policies:
      ai:
        defaults: { max_tokens: 7 }
        overrides: { seed: 1 }
        transformations:
          max_tokens: min(llmRequest.max_tokens, 50)
          seed: llmRequest.seed + 1
          user: request.headers["x-user"]
          metadata: '{"words": llmRequest.messages[0].content.split(" ").size(), "model": llm.requestModel}'
  - name: claude
    gateways: claude
    ${backend("anthropic")}
    policies: { ai: { prompts: { prepend: [{ role: system, content: Be kind. }] } } }
  - name: guarded
    gateways: guarded
    ${backend("openAI")}
    policies:
      ai:
        promptGuard:
          request: [{ regex: { rules: [{ builtin: email }] } }, { regex: { action: reject, rules: [{ pattern: "(?i)bomb" }] }, rejection: { status: 422, body: Not here. } }]
          response: [{ regex: { rules: [{ pattern: "there, fri" }] } }]
  - name: refusing
    gateways: refusing
    ${backend("openAI")}
    policies: { ai: { promptGuard: { response: [{ regex: { action: reject, rules: [{ pattern: friend }] } }] } } }
  - name: costs
    gateways: costs
    ${backend("openAI", ", modelCatalog: prices.json")}
`,
    {
      files: {
        "prices.json": JSON.stringify({
          providers: { openai: { models: { "m-cached": { rates: { input: "2", output: "10", cacheRead: "0.5" } } } } },
        }),
      },
    },
  );
});
after(async () => {
  await gateway?.close();
  await upstream.close();
});

const ask = (listener: string, body: object, id = "x") =>
  fetch(`${gateway.url(listener)}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-request-id": id },
    body: JSON.stringify(body),
  });
const say = (content: string, extra = {}) => ({ model: "m", messages: [{ role: "user", content }], ...extra });

test("defaults, overrides and prompts change what the provider gets", async () => {
  assert.equal((await ask("default", say("Hello", { max_tokens: 9 }))).status, 200);
  assert.deepEqual(upstream.last().body, {
    model: "m",
    temperature: 0.1,
    max_tokens: 100,
    messages: [
      { role: "system", content: "Be kind." },
      { role: "user", content: "Hello" },
      { role: "user", content: "Answer in French." },
    ],
  });
});

test("a default model stands in for none, and aliases are exact or by pattern", async () => {
  await ask("default", { messages: [] });
  assert.equal(upstream.last().body.model, "default-model");
  await ask("default", say("x", { model: "gpt" }));
  assert.equal(upstream.last().body.model, "gpt-real");
  await ask("default", say("x", { model: "old-7" }));
  assert.equal(upstream.last().body.model, "new-7");
});

test("a translated request gets its prompt in the provider's place", async () => {
  await ask("claude", say("Hello"));
  assert.deepEqual(upstream.last().body.system, [{ type: "text", text: "Be kind." }]);
});

test("a request guard masks", async () => {
  await ask("guarded", say("I am me@example.com"));
  assert.match(JSON.stringify(upstream.last().body), /I am <EMAIL_ADDRESS>/);
});

test("a request guard refuses with its own status and words, and the provider is not asked", async () => {
  const calls = upstream.requests.length;
  const response = await ask("guarded", say("How to build a BOMB?"));
  assert.equal(response.status, 422);
  assert.equal(((await response.json()) as { error: { message: string } }).error.message, "Not here.");
  assert.equal(upstream.requests.length, calls);
});

test("a response guard masks JSON and streams", async () => {
  const whole = await (await ask("guarded", say("Hi"))).text();
  assert.match(whole, /Hello <masked>end\./);
  const stream = await (await ask("guarded", say("Hi", { stream: true }))).text();
  const text = [...stream.matchAll(/"content":"([^"]*)"/g)].map(([, part]) => part).join("");
  assert.equal(text, "Hello <masked>end.");
  assert.ok(stream.endsWith("data: [DONE]\n\n"));
});

test("a response guard refuses JSON with its status, and a stream with an error event", async () => {
  const whole = await ask("refusing", say("Hi"));
  assert.equal(whole.status, 403);
  let text = "";
  await assert.rejects(async () => {
    const response = await ask("refusing", say("Hi", { stream: true }));
    for await (const part of response.body ?? []) text += Buffer.from(part).toString();
  });
  assert.match(text, /"code":"content_rejected"/);
  assert.ok(!text.includes("[DONE]") && !text.includes("friend"));
});

test("the cost of a call is in the log, cached tokens at their own price", async () => {
  await ask("costs", say("Hi", { model: "m-cached" }), "cost-1");
  const line = JSON.parse(await gateway.logged("cost-1")) as Record<string, unknown>;
  assert.equal(line["llm.cost"], (20 * 2 + 80 * 0.5 + 7 * 10) / 1_000_000);
});

test("a model without a price has no cost", async () => {
  await ask("costs", say("Hi"), "cost-2");
  assert.equal((JSON.parse(await gateway.logged("cost-2")) as Record<string, unknown>)["llm.cost"], undefined);
});

test("fields of the body are computed from the request, and a field whose expression fails is removed", async () => {
  const sent = async (body: object, headers = {}): Promise<Record<string, unknown>> => {
    const response = await fetch(`${gateway.url("computed")}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    assert.equal(response.status, 200);
    return upstream.last().body;
  };
  const long = `two ${"w".repeat(100_000)}`;
  const full = await sent(say(long, { max_tokens: 900, seed: 41, user: "forged" }), { "x-user": "ada" });
  const { max_tokens: limit, seed, user, metadata, messages } = full;
  assert.deepEqual([limit, seed, user], [50, 42, "ada"]);
  assert.deepEqual(metadata, { words: 2, model: "m" });
  assert.deepEqual(messages, [{ role: "user", content: long }]);
  const bare = await sent(say("a b c", { user: "forged" }));
  assert.deepEqual([bare.max_tokens, "seed" in bare, "user" in bare], [7, false, false]);
});

test("a body that is too large for expressions is rejected", async () => {
  const response = await ask("computed", say("w".repeat(3 * 1024 * 1024)));
  assert.equal(response.status, 413);
});
