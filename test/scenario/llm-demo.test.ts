import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { defaultConfig } from "../../src/config/load/default-config.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { gatewayFor } from "../support/scenario.ts";

let gateway: TestGateway;
before(async () => {
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes:
  - name: demo
    backends: [{ ai: { name: demo, provider: { demo: {} } } }]
`);
});
after(() => gateway.close());

const ask = (body: unknown, path = "/v1/chat/completions") =>
  fetch(`${gateway.url()}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

test("the demo provider answers a chat request with usage [S4.1-4]", async () => {
  const response = await ask({ model: "demo", messages: [{ role: "user", content: "Hello" }] });
  assert.equal(response.status, 200);
  const answer = (await response.json()) as OpenAI.ChatCompletion;
  assert.match(answer.choices[0]?.message.content ?? "", /You said "Hello"/);
  assert.equal(answer.usage?.total_tokens, (answer.usage?.prompt_tokens ?? 0) + (answer.usage?.completion_tokens ?? 0));
});

test("it answers on any path, with the same words every time", async () => {
  const body = { model: "demo", messages: [{ role: "user", content: "Hello" }] };
  const [one, two] = await Promise.all([ask(body, "/"), ask(body, "/anything")]);
  const [first, second] = [(await one.json()) as OpenAI.ChatCompletion, (await two.json()) as OpenAI.ChatCompletion];
  assert.deepEqual([first.id, first.choices], [second.id, second.choices]);
});

test("it streams chunks that end in [DONE], without usage unless asked [S4.1-5] [S4.1-11]", async () => {
  const text = await (await ask({ model: "demo", stream: true, messages: [{ role: "user", content: "Hi" }] })).text();
  assert.match(text, /^data: \{/);
  assert.ok(text.endsWith("data: [DONE]\n\n"));
  assert.ok(!text.includes("total_tokens"));
  const asked = await (
    await ask({
      model: "demo",
      stream: true,
      stream_options: { include_usage: true },
      messages: [{ role: "user", content: "Hi" }],
    })
  ).text();
  assert.ok(asked.includes("total_tokens"));
});

test("the OpenAI SDK works with it: chat, stream, responses, embeddings, models", async () => {
  const client = new OpenAI({ baseURL: `${gateway.url()}/v1`, apiKey: "none" });
  const chat = await client.chat.completions.create({ model: "demo", messages: [{ role: "user", content: "Hi" }] });
  assert.match(chat.choices[0]?.message.content ?? "", /You said "Hi"/);
  let streamed = "";
  for await (const chunk of await client.chat.completions.create({
    model: "demo",
    stream: true,
    messages: [{ role: "user", content: "Hi" }],
  })) {
    streamed += chunk.choices[0]?.delta.content ?? "";
  }
  assert.equal(streamed, chat.choices[0]?.message.content);
  const response = await client.responses.create({ model: "demo", input: "Hi" });
  assert.equal(response.output_text, streamed);
  const embedding = await client.embeddings.create({ model: "demo", input: ["a", "b"], encoding_format: "float" });
  assert.equal(embedding.data.length, 2);
  const models = await client.models.list();
  assert.deepEqual(
    models.data.map(({ id }) => id),
    ["demo"],
  );
});

test("the embedded default says in a browser what to call, and still answers calls at the same path", async (t) => {
  const yaml = defaultConfig({ command: process.execPath, args: ["unused.js"] });
  const embedded = await gatewayFor(t, yaml, { environment: { PORT: "0", LLM_PORT: "0", ADMIN_PORT: "0" } });
  for (const path of ["/", "/v1"]) {
    const response = await fetch(`${embedded.url("llm")}${path}`);
    assert.equal(response.status, 200);
    assert.match(await response.text(), /POST JSON to \/v1\/chat\/completions/);
  }
  const models = await fetch(`${embedded.url("llm")}/v1/models`);
  assert.match(await models.text(), /"demo"/);
  const posted = await fetch(`${embedded.url("llm")}/`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "demo", messages: [{ role: "user", content: "Hi" }] }),
  });
  assert.match(await posted.text(), /chat\.completion/);
});
