import assert from "node:assert/strict";
import { test } from "node:test";
import { clientError, errorMessage, isContextLengthError } from "./llm-errors.ts";

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

for (const [provider, body] of [
  ["Anthropic", { type: "error", error: { type: "invalid_request_error", message: "prompt is too long: 9 > 5" } }],
  ["OpenAI", { error: { message: "Your input exceeds the context window", code: "context_length_exceeded" } }],
  [
    "Gemini",
    { error: { code: 400, message: "The input token count (9) exceeds the maximum", status: "INVALID_ARGUMENT" } },
  ],
  ["Bedrock", { message: "Input is too long for requested model." }],
] as const) {
  test(`a prompt that is too long for ${provider} has the code and the words that clients look for`, () => {
    const text = JSON.stringify(body);
    for (const format of ["chat", "responses"] as const)
      assert.equal(clientError(format, 400, body, text).code, "context_length_exceeded");
    const { message } = clientError("messages", 400, body, text);
    assert.match(message, /^prompt is too long: /);
    assert.equal(message.split("prompt is too long").length, 2, "not twice");
    assert.ok(message.endsWith(errorMessage(body, text).replace(/^prompt is too long: /, "")));
  });
}

test("other errors of a provider keep their words and have no code", () => {
  const body = { error: { message: "tools[0] is not valid" } };
  const expected = { status: 400, message: "tools[0] is not valid" };
  for (const format of ["chat", "messages"] as const)
    assert.deepEqual(clientError(format, 400, body, JSON.stringify(body)), expected);
});
