import assert from "node:assert/strict";
import { test } from "node:test";
import { maxOutputTokens } from "./estimate-tokens.ts";

const cases: readonly [body: string, maximum: number | undefined][] = [
  ['{"model":"m","max_tokens":140}', 140],
  ['{"max_completion_tokens":140,"max_tokens":20}', 140],
  ['{"max_output_tokens":140}', 140],
  ['{"maxTokens":140}', 140],
  ['{"generationConfig":{"temperature":1,"maxOutputTokens":140}}', 140],
  ['{"generation_config":{"max_output_tokens":140}}', 140],
  ['{"inferenceConfig":{"maxTokens":140}}', 140],
  ['{"inferenceConfig":{"max_new_tokens":140}}', 140],
  ['{"textGenerationConfig":{"maxTokenCount":140}}', 140],
  ['{"max_gen_len":140}', 140],
  ['{"max_tokens_to_sample":140}', 140],
  ['{"max_tokens":140,"n":3}', 420],
  ['{"n":3,"best_of":5,"max_tokens":10}', 50],
  ['{"generationConfig":{"candidateCount":2,"maxOutputTokens":70}}', 140],
  ['{"MAX_TOKENS":140}', 140],
  ['{"generationconfig":{"maxoutputtokens":140}}', 140],
  ['{"max_tok\\u0065ns":140}', 140],
  ['{"\\u006dax_tokens":140}', 140],
  ['{"max_tokens":"140"}', 140],
  ['{"max_tokens":139.5}', 140],
  ['{"max_tokens":1e300,"n":1e300}', 1_000_000_000],
  ['{"max_tokens":1,"max_tokens":140}', 140],
  ['{"n":3}', undefined],
  ['{"max_tokens":null}', undefined],
  ['{"max_tokens":-1}', undefined],
  ['{"max_tokens":"many"}', undefined],
  ['{"max_tokens":""}', undefined],
  ['{"max_tokens":[140]}', undefined],
  ['{"metadata":{"max_tokens":140}}', undefined],
  ['{"messages":[{"content":"\\"max_tokens\\":140","max_tokens":140}]}', undefined],
  ["{", undefined],
  ["", undefined],
];
for (const [body, maximum] of cases) {
  test(`the output maximum of ${body}`, () => assert.equal(maxOutputTokens(Buffer.from(body)), maximum));
}
