/**
 * SDKs of providers that are served natively: OpenAI's responses and embeddings, Google, AWS and Vercel.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { BedrockRuntimeClient, ConverseCommand, ConverseStreamCommand } from "@aws-sdk/client-bedrock-runtime";
import { GoogleGenAI } from "@google/genai";
import { NodeHttpHandler } from "@smithy/node-http-handler";
import { generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";
import { type SdkGateway, startSdkGateway } from "../support/llm/sdk-gateway.ts";
import { COUNTS, TEXT } from "../support/llm/upstream-answers.ts";

const ANSWER = TEXT.join("");
let gateway: SdkGateway;
before(async () => {
  gateway = await startSdkGateway();
});
after(() => gateway.close());

test("openai SDK: responses and embeddings are native", async () => {
  const client = new OpenAI({ baseURL: `${gateway.url("openai")}/v1`, apiKey: "client-key", maxRetries: 0 });
  const response = await client.responses.create({ model: "m", input: "Hello?" });
  assert.equal(response.output_text, ANSWER);
  assert.equal(response.usage?.total_tokens, COUNTS.input + COUNTS.output);
  let text = "";
  for await (const event of await client.responses.create({ model: "m", input: "Hello?", stream: true }))
    if (event.type === "response.output_text.delta") text += event.delta;
  assert.equal(text, ANSWER);
  const embedding = await client.embeddings.create({ model: "e", input: "x", encoding_format: "float" });
  assert.deepEqual(embedding.data[0]?.embedding, [0.5, -0.5]);
  assert.deepEqual(
    (await client.models.list()).data.map(({ id }) => id),
    ["upstream-model"],
  );
});

test("@google/genai: JSON, stream and tools are native", async () => {
  const client = new GoogleGenAI({ apiKey: "client-key", httpOptions: { baseUrl: gateway.url("gemini") } });
  const answer = await client.models.generateContent({ model: "gemini-cached", contents: "Hello?" });
  assert.equal(answer.text, ANSWER);
  assert.equal(answer.usageMetadata?.cachedContentTokenCount, COUNTS.cached);
  assert.equal(gateway.upstream.last().headers["x-goog-api-key"], "key-of-gemini");
  let text = "";
  for await (const chunk of await client.models.generateContentStream({ model: "gemini-x", contents: "Hello?" }))
    text += chunk.text ?? "";
  assert.equal(text, ANSWER);
  const called = await client.models.generateContent({
    model: "gemini-tool",
    contents: "Weather?",
    config: { tools: [{ functionDeclarations: [{ name: "get_weather" }] }] },
  });
  assert.deepEqual(called.functionCalls?.[0]?.args, { city: "Rome" });
});

// It speaks HTTP/2 unless it is told not to.
const handlers = { "HTTP/2": {}, "HTTP/1.1": { requestHandler: new NodeHttpHandler() } };
for (const [protocol, handler] of Object.entries(handlers))
  test(`@aws-sdk/client-bedrock-runtime over ${protocol}: converse, stream and tools are native, and signed anew`, async () => {
    const client = new BedrockRuntimeClient({
      region: "us-east-1",
      endpoint: gateway.url("bedrock"),
      credentials: { accessKeyId: "CLIENTKEY", secretAccessKey: "client-secret" },
      ...handler,
    });
    const messages = [{ role: "user" as const, content: [{ text: "Hello?" }] }];
    const answer = await client.send(new ConverseCommand({ modelId: "anthropic.claude-cached-v1:0", messages }));
    assert.equal(answer.output?.message?.content?.[0]?.text, ANSWER);
    assert.equal(answer.usage?.cacheReadInputTokens, COUNTS.cached);
    const signature = String(gateway.upstream.last().headers.authorization);
    assert.match(signature, /^AWS4-HMAC-SHA256 Credential=AKID\/\d{8}\/us-east-1\/bedrock\/aws4_request/);
    assert.equal(gateway.upstream.last().url, "/model/anthropic.claude-cached-v1%3A0/converse");
    const streamed = await client.send(new ConverseStreamCommand({ modelId: "x", messages }));
    let text = "";
    let total: number | undefined;
    for await (const event of streamed.stream ?? []) {
      text += event.contentBlockDelta?.delta?.text ?? "";
      total = event.metadata?.usage?.totalTokens ?? total;
    }
    assert.equal(text, ANSWER);
    assert.equal(total, COUNTS.input + COUNTS.output);
    const toolConfig = { tools: [{ toolSpec: { name: "get_weather", inputSchema: { json: { type: "object" } } } }] };
    const called = await client.send(new ConverseCommand({ modelId: "tool", messages, toolConfig }));
    assert.deepEqual(called.output?.message?.content?.[0]?.toolUse?.input, { city: "Rome" });
    client.destroy();
  });

test("@ai-sdk/openai: responses by default, chat on request, tools and streams", async () => {
  const provider = createOpenAI({ baseURL: `${gateway.url("openai")}/v1`, apiKey: "client-key" });
  const answered = await generateText({ model: provider("m"), prompt: "Hello?", maxRetries: 0 });
  assert.equal(answered.text, ANSWER);
  assert.equal(answered.usage.totalTokens, COUNTS.input + COUNTS.output);
  for (const listener of ["openai", "anthropic", "gemini", "bedrock"]) {
    const chat = createOpenAI({ baseURL: `${gateway.url(listener)}/v1`, apiKey: "client-key" }).chat;
    const streamed = streamText({ model: chat("m"), prompt: "Hello?", maxRetries: 0 });
    assert.equal(await streamed.text, ANSWER, listener);
    assert.equal((await streamed.usage).totalTokens, COUNTS.input + COUNTS.output, listener);
    const called = await generateText({
      model: chat("m-tool"),
      prompt: "Weather?",
      tools: { get_weather: tool({ inputSchema: jsonSchema({ type: "object" }) }) },
      maxRetries: 0,
    });
    assert.deepEqual(called.toolCalls[0]?.input, { city: "Rome" }, listener);
  }
});
