/** The shipped price list: complete, plausible, dated, and equal to the output of the script. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { PRICE_LIST, PRICE_LIST_CHECKSUM, PRICE_LIST_DATE, PRICE_LIST_SOURCE } from "./price-list.ts";
import { costOf, readPriceList, shippedPrices } from "./usage.ts";

test("the list is the output of the script, with a date and a source", () => {
  const checksum = createHash("sha256").update(PRICE_LIST).digest("hex");
  assert.equal(checksum, PRICE_LIST_CHECKSUM, "run node scripts/prices.mjs instead of editing the list");
  assert.match(PRICE_LIST_DATE, /^\d{4}-\d\d-\d\d$/);
  assert.ok(!Number.isNaN(Date.parse(PRICE_LIST_DATE)));
  assert.match(PRICE_LIST_SOURCE, /litellm \d/);
});

test("every price is a plausible number of dollars per million tokens", () => {
  const list = readPriceList(PRICE_LIST);
  assert.ok(list.size > 500);
  for (const [name, { tiers = [], ...rates }] of list)
    for (const value of [rates, ...tiers].flatMap(({ input, output, cacheRead, cacheWrite, reasoning }) => [
      input,
      output,
      cacheRead,
      cacheWrite,
      reasoning,
    ]))
      assert.ok(Number.isFinite(value) && value >= 0 && value <= 1_000, `${name}: ${value}`);
});

test("the usual providers are included", () => {
  for (const [provider, model] of [
    ["openai", "gpt-4o"],
    ["anthropic", "claude-sonnet-4-5"],
    ["gcp.gemini", "gemini-2.5-pro"],
    ["gcp.vertex_ai", "gemini-2.5-pro"],
    ["azure", "gpt-4o"],
    ["aws.bedrock", "anthropic.claude-3-5-sonnet-20241022-v2:0"],
    ["aws.bedrock", "jp.anthropic.claude-3-5-sonnet-20241022-v2:0"],
    ["mistral", "mistral-large-latest"],
  ] as const)
    assert.ok(shippedPrices().prices(provider, [model]) !== undefined, `${provider} ${model}`);
  assert.equal(shippedPrices().prices("openai", ["no-such-model"]), undefined);
});

test("a long prompt costs the prices of its tier, for the whole call", () => {
  const attributes = { provider: "gcp.gemini", responseModel: "gemini-2.5-pro", outputTokens: 1_000_000 };
  const short = costOf(shippedPrices(), { ...attributes, inputTokens: 200_000 });
  const long = costOf(shippedPrices(), { ...attributes, inputTokens: 200_001 });
  assert.equal(short, 10.25);
  assert.equal(long, Number((15 + 200_001 * 2.5e-6).toFixed(9)));
});
