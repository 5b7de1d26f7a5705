import assert from "node:assert/strict";
import { test } from "node:test";
import { HeaderList } from "../../http/headers.ts";
import { mergeUsage, readHeaderUsage, readUsage, usedTokens } from "./usage.ts";

const cases: { name: string; usage: unknown; expected: ReturnType<typeof readUsage> }[] = [
  {
    name: "OpenAI chat, where cached tokens are part of the prompt",
    usage: {
      prompt_tokens: 100,
      completion_tokens: 20,
      total_tokens: 120,
      prompt_tokens_details: { cached_tokens: 64 },
      completion_tokens_details: { reasoning_tokens: 5 },
    },
    expected: { inputTokens: 100, outputTokens: 20, totalTokens: 120, cachedInputTokens: 64, reasoningTokens: 5 },
  },
  {
    name: "a server that leaves reasoning out of the output",
    usage: {
      prompt_tokens: 10,
      completion_tokens: 4,
      total_tokens: 114,
      completion_tokens_details: { reasoning_tokens: 100 },
    },
    expected: { inputTokens: 10, outputTokens: 104, totalTokens: 114, reasoningTokens: 100 },
  },
  {
    name: "OpenAI embeddings, which have no output",
    usage: { prompt_tokens: 8, total_tokens: 8 },
    expected: { inputTokens: 8, outputTokens: 0, totalTokens: 8 },
  },
  {
    name: "OpenAI responses",
    usage: {
      input_tokens: 100,
      input_tokens_details: { cached_tokens: 30 },
      output_tokens: 7,
      output_tokens_details: { reasoning_tokens: 2 },
      total_tokens: 107,
    },
    expected: { inputTokens: 100, outputTokens: 7, totalTokens: 107, cachedInputTokens: 30, reasoningTokens: 2 },
  },
  {
    name: "Anthropic, whose input leaves out what was cached",
    usage: { input_tokens: 10, cache_creation_input_tokens: 200, cache_read_input_tokens: 3000, output_tokens: 5 },
    expected: {
      inputTokens: 3210,
      outputTokens: 5,
      totalTokens: 3215,
      cachedInputTokens: 3000,
      cacheCreationInputTokens: 200,
    },
  },
  {
    name: "Anthropic with null cache counts",
    usage: { input_tokens: 10, cache_creation_input_tokens: null, cache_read_input_tokens: null, output_tokens: 5 },
    expected: { inputTokens: 10, outputTokens: 5, totalTokens: 15 },
  },
  {
    name: "Gemini, whose thoughts are output and whose tool prompts are input",
    usage: {
      promptTokenCount: 50,
      cachedContentTokenCount: 40,
      candidatesTokenCount: 9,
      thoughtsTokenCount: 11,
      toolUsePromptTokenCount: 4,
      totalTokenCount: 74,
    },
    expected: { inputTokens: 54, outputTokens: 20, totalTokens: 74, cachedInputTokens: 40, reasoningTokens: 11 },
  },
  {
    name: "Bedrock, whose input leaves out what was cached",
    usage: { inputTokens: 10, outputTokens: 5, totalTokens: 15, cacheReadInputTokens: 100, cacheWriteInputTokens: 1 },
    expected: {
      inputTokens: 111,
      outputTokens: 5,
      totalTokens: 116,
      cachedInputTokens: 100,
      cacheCreationInputTokens: 1,
    },
  },
  { name: "a bare sum", usage: { total_tokens: 50 }, expected: { inputTokens: 50, outputTokens: 0, totalTokens: 50 } },
  {
    name: "a sum that is larger than its parts",
    usage: { prompt_tokens: 10, completion_tokens: 1, total_tokens: 90 },
    expected: { inputTokens: 10, outputTokens: 1, totalTokens: 90 },
  },
  {
    name: "zeros, which are counts",
    usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
    expected: { inputTokens: 0, outputTokens: 0, totalTokens: 0 },
  },
  { name: "nothing in a negative count", usage: { total_tokens: -1e6 }, expected: undefined },
  {
    name: "counts beyond all bounds as the bound, and nothing in what is no number",
    usage: { prompt_tokens: 1e308, completion_tokens: Number.NaN },
    expected: { inputTokens: 1e9, outputTokens: 0, totalTokens: 1e9 },
  },
  {
    name: "ten thousand million tokens as the bound",
    usage: { prompt_tokens: 1e10, completion_tokens: 5 },
    expected: { inputTokens: 1e9, outputTokens: 5, totalTokens: 1e9 + 5 },
  },
  { name: "nothing in strings", usage: { prompt_tokens: "12" }, expected: undefined },
  { name: "nothing in an empty object", usage: {}, expected: undefined },
  { name: "nothing in null", usage: null, expected: undefined },
  { name: "nothing in a list", usage: [{ prompt_tokens: 1 }], expected: undefined },
];

for (const { name, usage, expected } of cases) {
  test(`reads ${name}`, () => assert.deepEqual(readUsage(usage), expected));
}

test("a later event of a stream replaces only the counts that it gives", () => {
  const start = { input_tokens: 10, cache_read_input_tokens: 90, output_tokens: 1 };
  const delta = { output_tokens: 25, cache_read_input_tokens: null };
  assert.deepEqual(readUsage(mergeUsage(start, delta)), {
    inputTokens: 100,
    outputTokens: 25,
    totalTokens: 125,
    cachedInputTokens: 90,
  });
});

test("Bedrock's counts in headers are read like those in the body", () => {
  const headers = (entries: Record<string, string>) => HeaderList.of(entries);
  const name = (kind: string): string => `x-amzn-bedrock-${kind}-token-count`;
  assert.deepEqual(readHeaderUsage(headers({ [name("input")]: "12", [name("output")]: "0" })), {
    inputTokens: 12,
    outputTokens: 0,
    totalTokens: 12,
  });
  const cached = { [name("input")]: "2", [name("cache-read-input")]: "10", [name("output")]: "3" };
  assert.equal(readHeaderUsage(headers(cached))?.inputTokens, 12);
  assert.equal(readHeaderUsage(headers({ [name("input")]: "many" })), undefined);
  assert.equal(readHeaderUsage(headers({})), undefined);
});

test("a total above the sum of input and output is what limits count", () => {
  const outcome = { status: 200, end: "complete", responseBytes: 0 } as const;
  assert.equal(usedTokens({ inputTokens: 10, outputTokens: 5, totalTokens: 100 }, outcome), 100);
  assert.equal(usedTokens({ inputTokens: 10, outputTokens: 5, totalTokens: 3 }, outcome), 15);
});
