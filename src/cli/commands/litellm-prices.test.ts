/**
 * Conversion of LiteLLM's price data to a model catalog.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parsePriceCatalogue } from "../../llm/usage/usage.ts";
import { fromLitellm } from "./prices-command.ts";

const DATA = {
  sample_spec: { litellm_provider: "one of these", mode: "chat or others" },
  "gpt-x": {
    litellm_provider: "openai",
    mode: "chat",
    input_cost_per_token: 2.5e-6,
    output_cost_per_token: 1e-5,
    cache_read_input_token_cost: 1.25e-6,
    input_cost_per_token_batches: 1e-6,
    input_cost_per_token_above_200k_tokens: 5e-6,
    output_cost_per_token_above_200k_tokens: 2e-5,
  },
  "gemini/gem": { litellm_provider: "gemini", mode: "chat", input_cost_per_token: 1e-7, output_cost_per_token: 4e-7 },
  "bedrock/us-east-1/m": {
    litellm_provider: "bedrock",
    mode: "chat",
    input_cost_per_token: 1,
    output_cost_per_token: 1,
  },
  "an-image": {
    litellm_provider: "openai",
    mode: "image_generation",
    input_cost_per_token: 1,
    output_cost_per_token: 1,
  },
  unpriced: { litellm_provider: "openai", mode: "chat" },
  broken: { litellm_provider: "openai", mode: "chat", input_cost_per_token: -1, output_cost_per_token: "x" },
  nothing: null,
};

test("only models priced by the token are imported, with their cache prices and tiers", () => {
  const catalogue = fromLitellm(DATA as Record<string, unknown>);
  assert.deepEqual(catalogue, {
    providers: {
      openai: {
        models: {
          "gpt-x": {
            rates: { input: 2.5, output: 10, cacheRead: 1.25, tiers: [{ above: 200_000, input: 5, output: 20 }] },
          },
        },
      },
      "gcp.gemini": { models: { gem: { rates: { input: 0.1, output: 0.4 } } } },
    },
  });
  parsePriceCatalogue(JSON.stringify(catalogue));
});
