/**
 * A parameter that a provider does not support is rejected by its name.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { between, context, user } from "../../../test/support/llm/strict-translation.ts";
import type { Members } from "../../json/json.ts";
import type { Format } from "../request/dialect.ts";
import { TranslationError } from "./conversation.ts";

const refused: [client: Format, provider: Format, body: Members, param: string][] = [
  ["chat", "messages", { ...user("x"), seed: 1 }, "seed"],
  ["chat", "messages", { ...user("x"), n: 2 }, "n"],
  ["chat", "messages", { ...user("x"), logit_bias: { 5: 1 } }, "logit_bias"],
  ["chat", "messages", { ...user("x"), frequency_penalty: 0.5 }, "frequency_penalty"],
  ["chat", "messages", { ...user("x"), response_format: { type: "json_object" } }, "response_format"],
  ["chat", "messages", { ...user("x"), functions: [] }, "functions"],
  ["chat", "messages", { ...user("x"), api_base: "http://evil" }, "api_base"],
  ["chat", "messages", { ...user("x"), web_search_options: {} }, "web_search_options"],
  ["chat", "messages", user([{ type: "input_audio", input_audio: {} }]), "messages[0].content[0].type"],
  [
    "chat",
    "messages",
    user([{ type: "image_url", image_url: { url: "data:image/png,raw" } }]),
    "messages[0].content[0].image_url.url",
  ],
  ["chat", "messages", user([{ type: "file", file: { file_id: "f" } }]), "messages[0].content[0].file"],
  ["chat", "messages", { messages: [{ role: "robot", content: "x" }] }, "messages[0].role"],
  [
    "chat",
    "messages",
    { messages: [{ role: "assistant", tool_calls: [{ id: "1", function: { name: "f", arguments: "{not json" } }] }] },
    "messages[0].tool_calls[0].function.arguments",
  ],
  ["chat", "messages", { ...user("x"), tools: [{ type: "custom" }] }, "tools[0].type"],
  ["chat", "messages", { messages: "x" }, "messages"],
  ["chat", "messages", { messages: [{ role: "user", name: "Ada", content: "x" }] }, "messages[0].name"],
  ["chat", "messages", { messages: [{ role: "assistant", audio: { id: "a" } }] }, "messages[0].audio"],
  ["chat", "converse", { messages: [{ role: "assistant", content: "x", prefix: true }] }, "messages[0].prefix"],
  [
    "messages",
    "chat",
    { ...user("x"), tools: [{ name: "f", input_schema: {}, input_examples: [] }] },
    "tools[0].input_examples",
  ],
  [
    "messages",
    "chat",
    user([{ type: "document", citations: { enabled: true }, source: { type: "text", data: "x" } }]),
    "messages[0].content[0].citations",
  ],
  [
    "messages",
    "chat",
    user([{ type: "document", context: "c", source: { type: "text", data: "x" } }]),
    "messages[0].content[0].context",
  ],
  ["messages", "converse", { ...user("x"), output_config: { effort: "low" } }, "output_config.effort"],
  ["chat", "generateContent", { ...user("x"), logprobs: true }, "logprobs"],
  ["chat", "generateContent", { messages: [{ role: "tool", tool_call_id: "nobody", content: "x" }] }, "messages"],
  ["chat", "generateContent", { ...user("x"), reasoning_effort: "extreme" }, "reasoning_effort"],
  ["chat", "converse", user([{ type: "image_url", image_url: { url: "https://example.com/a.png" } }]), "messages"],
  ["chat", "converse", { ...user("x"), response_format: { type: "json_object" } }, "response_format"],
  ["messages", "chat", { ...user("x"), container: "c" }, "container"],
  ["messages", "chat", { ...user("x"), inference_geo: "eu" }, "inference_geo"],
  ["messages", "chat", { ...user("x"), tools: [{ type: "web_search_20250305", name: "web_search" }] }, "tools[0].type"],
  [
    "messages",
    "chat",
    { messages: [{ role: "assistant", content: "x", tool_calls: [{ id: "t" }] }] },
    "messages[0].tool_calls",
  ],
  ["messages", "chat", user([{ type: "search_result" }]), "messages[0].content[0].type"],
  [
    "messages",
    "chat",
    user([{ type: "tool_result", tool_use_id: "t", content: [{ type: "video" }] }]),
    "messages[0].content[0].content[0].type",
  ],
];
for (const [client, provider, body, param] of refused) {
  test(`${client} to ${provider} rejects ${param} by name: ${JSON.stringify(body).slice(0, 60)}`, () => {
    assert.throws(
      () => between(client, provider).request({ model: "m", ...body }, context()),
      (error) => error instanceof TranslationError && error.param === param,
    );
  });
}
