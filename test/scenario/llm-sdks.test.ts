/**
 * Real SDKs against the gateway, each with its provider's API behind it: native, and through the one API for all.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { type SdkGateway, startSdkGateway } from "../support/llm/sdk-gateway.ts";
import { COUNTS, TEXT } from "../support/llm/upstream-answers.ts";

const ANSWER = TEXT.join("");
let gateway: SdkGateway;
before(async () => {
  gateway = await startSdkGateway();
});
after(() => gateway.close());

const openai = (listener: string) =>
  new OpenAI({ baseURL: `${gateway.url(listener)}/v1`, apiKey: "client-key", maxRetries: 0 });
const anthropic = (listener: string) =>
  new Anthropic({ baseURL: gateway.url(listener), apiKey: "client-key", maxRetries: 0 });
const question = [{ role: "user" as const, content: "Hello?" }];
const weather = {
  name: "get_weather",
  description: "The weather",
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

// Every provider through the OpenAI SDK.
for (const listener of ["openai", "anthropic", "gemini", "bedrock"]) {
  test(`openai SDK → ${listener}: JSON with usage`, async () => {
    const answer = await openai(listener).chat.completions.create({ model: "m-cached", messages: question });
    assert.equal(answer.choices[0]?.message.content, ANSWER);
    assert.equal(answer.choices[0]?.finish_reason, "stop");
    assert.equal(answer.usage?.prompt_tokens, COUNTS.input);
    assert.equal(answer.usage?.completion_tokens, COUNTS.output);
    assert.equal(answer.usage?.prompt_tokens_details?.cached_tokens, COUNTS.cached);
    assert.ok(!JSON.stringify(gateway.upstream.last().headers).includes("client-key"));
  });

  test(`openai SDK → ${listener}: stream with usage`, async () => {
    const stream = await openai(listener).chat.completions.create({
      model: "m",
      messages: question,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let usage: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, ANSWER);
    assert.equal(usage?.total_tokens, COUNTS.input + COUNTS.output);
  });

  test(`openai SDK → ${listener}: stream without usage shows no extra chunk`, async () => {
    const stream = await openai(listener).chat.completions.create({ model: "m", messages: question, stream: true });
    for await (const chunk of stream) assert.equal(chunk.choices.length, 1);
  });

  test(`openai SDK → ${listener}: tools there and back`, async () => {
    const client = openai(listener);
    const tools = [{ type: "function" as const, function: weather }];
    const first = await client.chat.completions.create({ model: "m-tool", messages: question, tools });
    const call = first.choices[0]?.message.tool_calls?.[0];
    assert.ok(call?.type === "function");
    assert.equal(call.function.name, "get_weather");
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Rome" });
    const messages = [
      ...question,
      first.choices[0]?.message as OpenAI.ChatCompletionMessage,
      { role: "tool" as const, tool_call_id: call.id, content: "21" },
    ];
    const second = await client.chat.completions.create({ model: "m-tool", messages, tools });
    assert.equal(second.choices[0]?.message.content, ANSWER);
    const runner = client.chat.completions.stream({ model: "m-tool", messages: question, tools });
    const final = await runner.finalChatCompletion();
    assert.deepEqual(JSON.parse(final.choices[0]?.message.tool_calls?.[0]?.function.arguments ?? ""), { city: "Rome" });
  });

  test(`openai SDK → ${listener}: the provider's error keeps its status`, async () => {
    await assert.rejects(
      openai(listener).chat.completions.create({ model: "fail-401", messages: question }),
      (error) => error instanceof OpenAI.AuthenticationError && /canned 401/.test(error.message),
    );
    await assert.rejects(
      openai(listener).chat.completions.create({ model: "fail-429", messages: question }),
      OpenAI.RateLimitError,
    );
  });

  test(`openai SDK → ${listener}: a stream that breaks off is an error, not an end`, async () => {
    if (listener === "bedrock") return;
    const stream = await openai(listener).chat.completions.create({
      model: "broken",
      messages: question,
      stream: true,
    });
    await assert.rejects(async () => {
      for await (const _ of stream);
    });
  });
}

// Anthropic's SDK: native, and to providers that speak chat.
for (const listener of ["anthropic", "openai", "gemini", "bedrock"]) {
  test(`anthropic SDK → ${listener}: JSON with usage`, async () => {
    const answer = await anthropic(listener).messages.create({ model: "m-cached", max_tokens: 50, messages: question });
    assert.deepEqual(answer.content[0]?.type === "text" && answer.content[0].text, ANSWER);
    assert.equal(answer.stop_reason, "end_turn");
    assert.equal(answer.usage.output_tokens, COUNTS.output);
    assert.equal(
      answer.usage.input_tokens +
        (answer.usage.cache_read_input_tokens ?? 0) +
        (answer.usage.cache_creation_input_tokens ?? 0),
      COUNTS.input,
    );
    assert.equal(answer.usage.cache_read_input_tokens, COUNTS.cached);
  });

  test(`anthropic SDK → ${listener}: stream`, async () => {
    const answer = await anthropic(listener)
      .messages.stream({ model: "m", max_tokens: 50, messages: question })
      .finalMessage();
    assert.deepEqual(answer.content[0]?.type === "text" && answer.content[0].text, ANSWER);
    assert.equal(answer.usage.output_tokens, COUNTS.output);
    assert.equal(answer.usage.input_tokens, COUNTS.input);
  });

  test(`anthropic SDK → ${listener}: tools there and back`, async () => {
    const client = anthropic(listener);
    const tools = [{ name: "get_weather", input_schema: { type: "object" as const } }];
    const first = await client.messages.create({ model: "m-tool", max_tokens: 50, messages: question, tools });
    const use = first.content.find((block) => block.type === "tool_use");
    assert.deepEqual(use?.input, { city: "Rome" });
    assert.equal(first.stop_reason, "tool_use");
    const messages = [
      ...question,
      { role: "assistant" as const, content: first.content },
      { role: "user" as const, content: [{ type: "tool_result" as const, tool_use_id: use?.id ?? "", content: "21" }] },
    ];
    const second = await client.messages.create({ model: "m-tool", max_tokens: 50, messages, tools });
    assert.equal(second.stop_reason, "end_turn");
    const streamed = await client.messages
      .stream({ model: "m-tool", max_tokens: 50, messages: question, tools })
      .finalMessage();
    assert.deepEqual(streamed.content.find((block) => block.type === "tool_use")?.input, { city: "Rome" });
  });

  test(`anthropic SDK → ${listener}: errors are Anthropic's`, async () => {
    await assert.rejects(
      anthropic(listener).messages.create({ model: "fail-403", max_tokens: 5, messages: question }),
      Anthropic.PermissionDeniedError,
    );
  });

  test(`anthropic SDK → ${listener}: counting tokens`, async () => {
    const counted = await anthropic(listener).messages.countTokens({ model: "m", messages: question });
    assert.ok(counted.input_tokens > 0);
  });
}

test("anthropic SDK: a broken stream is an error", async () => {
  await assert.rejects(
    anthropic("anthropic").messages.stream({ model: "broken", max_tokens: 5, messages: question }).finalMessage(),
  );
});

test("@anthropic-ai/sdk → a Claude on Bedrock: its own body and events, signed thoughts and all", async () => {
  const model = "us.anthropic.claude-m-cached";
  const thought = { type: "thinking" as const, thinking: "Hm.", signature: "signed" };
  const request = {
    model,
    max_tokens: 2000,
    thinking: { type: "enabled" as const, budget_tokens: 1024 },
    messages: [
      ...question,
      {
        role: "assistant" as const,
        content: [thought, { type: "tool_use" as const, id: "t", name: "now", input: {} }],
      },
      { role: "user" as const, content: [{ type: "tool_result" as const, tool_use_id: "t", content: "noon" }] },
    ],
  };
  const answer = await anthropic("bedrock").messages.create(request);
  assert.deepEqual(answer.content, [{ type: "text", text: ANSWER }]);
  assert.equal(answer.usage.cache_read_input_tokens, COUNTS.cached);
  const sent = gateway.upstream.last();
  assert.equal(sent.url, `/model/${model}/invoke`);
  assert.match(String(sent.headers.authorization), /^AWS4-HMAC-SHA256/);
  const { model: _model, ...rest } = request;
  assert.deepEqual(sent.body, { anthropic_version: "bedrock-2023-05-31", ...rest });

  const stream = anthropic("bedrock").messages.stream(request);
  assert.equal(await stream.finalText(), ANSWER);
  assert.equal((await stream.finalMessage()).usage.output_tokens, COUNTS.output);
  assert.equal(gateway.upstream.last().url, `/model/${model}/invoke-with-response-stream`);
});
