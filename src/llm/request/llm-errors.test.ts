import assert from "node:assert/strict";
import { test } from "node:test";
import { isContextLengthError } from "./llm-errors.ts";

const tooLong: [provider: string, body: unknown][] = [
  [
    "OpenAI",
    { error: { message: "Your input exceeds the context window of this model.", code: "context_length_exceeded" } },
  ],
  [
    "vLLM",
    {
      object: "error",
      message: "This model's maximum context length is 4096 tokens. However, you requested 9000",
      code: 400,
    },
  ],
  [
    "Anthropic",
    {
      type: "error",
      error: { type: "invalid_request_error", message: "prompt is too long: 210000 tokens > 200000 maximum" },
    },
  ],
  [
    "Anthropic, by size",
    { type: "error", error: { type: "request_too_large", message: "Request exceeds the maximum size" } },
  ],
  [
    "Gemini",
    {
      error: {
        code: 400,
        message: "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
        status: "INVALID_ARGUMENT",
      },
    },
  ],
  ["Bedrock", { message: "Input is too long for requested model." }],
];
for (const [provider, body] of tooLong) {
  test(`${provider}: the prompt is too long`, () => assert.equal(isContextLengthError(JSON.stringify(body)), true));
}

const others: [name: string, body: string][] = [
  [
    "a wrong temperature",
    JSON.stringify({ error: { message: "temperature must be at most 2", code: "invalid_value" } }),
  ],
  ["a text", "Bad Request"],
  ["nothing", ""],
  ["the words in another member", JSON.stringify({ error: { message: "invalid", param: "context length" } })],
];
for (const [name, body] of others) {
  test(`${name} is another error`, () => assert.equal(isContextLengthError(body), false));
}
