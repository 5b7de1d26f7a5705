import assert from "node:assert/strict";
import { test } from "node:test";
import { costOf, parsePriceCatalogue } from "./usage.ts";

const catalogue = parsePriceCatalogue(
  JSON.stringify({
    providers: {
      openai: { models: { "gpt-x": { rates: { input: "2", output: 8, cacheRead: "0.5" } } } },
      anthropic: { models: { c: { rates: { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 } } } },
    },
  }),
);
const tokens = { provider: "openai", inputTokens: 1_000_000, outputTokens: 0 };

test("cached tokens are priced as such, the rest as input", () => {
  const attributes = { provider: "anthropic", responseModel: "c", inputTokens: 1000, outputTokens: 100 };
  const cached = { ...attributes, cachedInputTokens: 800, cacheCreationInputTokens: 100 };
  assert.equal(costOf(catalogue, cached), (100 * 3 + 800 * 0.3 + 100 * 3.75 + 100 * 15) / 1e6);
  assert.equal(costOf(catalogue, attributes), (1000 * 3 + 100 * 15) / 1e6);
});

const names: [name: string, attributes: object, asked: string | undefined, cost: number | undefined][] = [
  ["the name in the answer", { responseModel: "gpt-x" }, undefined, 2],
  ["the name that was asked for, where the answer has a dated one", { responseModel: "gpt-x-2026-01-01" }, "gpt-x", 2],
  ["the name that was asked for, whatever the client calls it", { requestModel: "fast" }, "gpt-x", 2],
  ["the client's name", { requestModel: "gpt-x" }, undefined, 2],
  ["no name that has a price", { responseModel: "other", requestModel: "fast" }, "else", undefined],
];
for (const [name, attributes, asked, cost] of names) {
  test(`the price is found by ${name}`, () =>
    assert.equal(costOf(catalogue, { ...tokens, ...attributes }, asked), cost));
}

test("a catalog with a price that is not a number is rejected by name", () => {
  const wrong = { providers: { p: { models: { m: { rates: { input: "free" } } } } } };
  assert.throws(() => parsePriceCatalogue(JSON.stringify(wrong)), /providers\.p\.models\.m\.rates\.input/);
});
