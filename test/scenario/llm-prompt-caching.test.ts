/**
 * `ai.promptCaching`: requests to Anthropic and Bedrock get marks for the provider's prompt cache, in the client's words and in
 * translation; what the cache read and wrote is counted and priced.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type TestUpstream } from "../support/llm/upstream.ts";
import { COUNTS } from "../support/llm/upstream-answers.ts";

let gateway: TestGateway;
let upstream: TestUpstream;

before(async () => {
  upstream = await startUpstream();
  const host = `hostOverride: "${upstream.host}"`;
  const rates = { input: "10", output: "20", cacheRead: "1", cacheWrite: "12.5" };
  const prices = { providers: { anthropic: { models: { "claude-cached": { rates } } } } };
  gateway = await startGateway(
    `
config: { logging: { format: json } }
llm:
  port: 0
  modelCatalog: prices.json
  policies: { ai: { promptCaching: { minTokens: 100 } } }
  models:
    - { name: claude, provider: anthropic, params: { model: claude-cached, apiKey: k, ${host} } }
    - { name: vertex, provider: vertex, params: { model: claude-sonnet-4-5, vertexProject: p, apiKey: k, ${host} } }
    - { name: bedrock, provider: bedrock, params: { model: "anthropic.claude-sonnet-4-5-20250929-v1:0", awsRegion: us-east-1, awsAccessKeyId: A, awsSecretAccessKey: s, ${host} } }
    - { name: nova, provider: bedrock, params: { model: "amazon.nova-pro-v1:0", awsRegion: us-east-1, awsAccessKeyId: A, awsSecretAccessKey: s, ${host} } }
    - { name: gpt, provider: openAI, params: { model: gpt-4.1, apiKey: k, ${host} } }
    - { name: plain, provider: anthropic, params: { model: claude-x, apiKey: k, ${host} }, policies: { ai: { promptCaching: { system: false, tools: false, messages: false } } } }
`,
    { files: { "prices.json": JSON.stringify(prices) } },
  );
});
after(async () => {
  await gateway?.close();
  await upstream.close();
});

const SYSTEM = "Be brief. ".repeat(100);
const MARK = { type: "ephemeral" };
const POINT = { cachePoint: { type: "default" } };
const question = [{ role: "user" as const, content: "Hello?" }];
const claude = () => new Anthropic({ baseURL: gateway.url(), apiKey: "x", maxRetries: 0 });
const openai = () => new OpenAI({ baseURL: `${gateway.url()}/v1`, apiKey: "x", maxRetries: 0 });
const tool = { name: "t", input_schema: { type: "object" as const } };
const system = [{ type: "text", text: SYSTEM, cache_control: MARK }];
const messages = [{ role: "user", content: [{ type: "text", text: "Hello?", cache_control: MARK }] }];

for (const model of ["claude", "vertex", "bedrock"])
  test(`messages → ${model}: system and conversation are marked, tools only if they are long enough`, async () => {
    await claude().messages.create({ model, max_tokens: 9, system: SYSTEM, tools: [tool], messages: question });
    const { body } = upstream.last();
    assert.deepEqual([body.system, body.messages, body.tools], [system, messages, [tool]]);
    const long = { ...tool, description: SYSTEM };
    await claude().messages.create({ model, max_tokens: 9, tools: [long], messages: question });
    assert.deepEqual(upstream.last().body.tools, [{ ...long, cache_control: MARK }]);
  });

test("chat → Anthropic: the translated request is marked", async () => {
  await openai().chat.completions.create({
    model: "claude",
    messages: [{ role: "system", content: SYSTEM }, ...question],
  });
  const { body } = upstream.last();
  assert.deepEqual([body.system, body.messages, body.model], [system, messages, "claude-cached"]);
});

for (const model of ["bedrock", "nova"])
  test(`chat → ${model}: cache points`, async () => {
    await openai().chat.completions.create({ model, messages: [{ role: "system", content: SYSTEM }, ...question] });
    const { body } = upstream.last();
    assert.deepEqual(body.system, [{ text: SYSTEM }, POINT]);
    assert.deepEqual(body.messages, [{ role: "user", content: [{ text: "Hello?" }, POINT] }]);
  });

test("short requests, requests with marks of their own and other providers are left as they are", async () => {
  await claude().messages.create({ model: "claude", max_tokens: 9, messages: question });
  assert.deepEqual(upstream.last().body.messages, question);
  const own = [{ type: "text" as const, text: SYSTEM, cache_control: { type: "ephemeral" as const } }];
  await claude().messages.create({ model: "claude", max_tokens: 9, system: own, messages: question });
  assert.deepEqual([upstream.last().body.system, upstream.last().body.messages], [own, question]);
  await openai().chat.completions.create({
    model: "gpt",
    messages: [{ role: "system", content: SYSTEM }, ...question],
  });
  assert.ok(!JSON.stringify(upstream.last().body).includes("cache"));
});

test("a model's own setting replaces that of the route", async () => {
  await claude().messages.create({ model: "plain", max_tokens: 9, system: SYSTEM, messages: question });
  assert.deepEqual([upstream.last().body.system, upstream.last().body.messages], [SYSTEM, question]);
});

test("counting tokens is not marked", async () => {
  await claude().messages.countTokens({ model: "claude", system: SYSTEM, messages: question });
  assert.equal(upstream.last().body.system, SYSTEM);
});

test("what the cache read and wrote is counted and priced", async () => {
  await claude().messages.create(
    { model: "claude", max_tokens: 9, system: SYSTEM, messages: question },
    { headers: { "x-request-id": "priced" } },
  );
  const line = JSON.parse(await gateway.logged('"id":"priced"')) as Record<string, number>;
  const { input, cached, written, output } = COUNTS;
  assert.equal(line["gen_ai.usage.input_tokens"], input);
  const plain = input - cached - written;
  const cost = (plain * 10 + cached * 1 + written * 12.5 + output * 20) / 1_000_000;
  assert.ok(Math.abs((line["llm.cost"] as number) - cost) < 1e-9, JSON.stringify(line));
});

test("an image of megabytes passes as it came", async () => {
  const data = Buffer.alloc(3 * 1024 * 1024, 7).toString("base64");
  const image = { type: "image" as const, source: { type: "base64" as const, media_type: "image/png" as const, data } };
  await claude().messages.create({ model: "claude", max_tokens: 9, messages: [{ role: "user", content: [image] }] });
  const [first] = upstream.last().body.messages as [{ content: [{ source: { data: string } }] }];
  assert.equal(first.content[0].source.data, data);
});
