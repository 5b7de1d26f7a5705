/**
 * Estimates the price of a call before it is made, as the highest price among the targets that could serve it.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { CompileEnv } from "../../core/policy.ts";
import type { Quote } from "../request/llm-call.ts";
import { eitherCatalogue, type PriceCatalogue, parsePriceCatalogue, priceOf, shippedPrices } from "../usage/prices.ts";
import { estimatedTokens } from "../usage/usage.ts";
import type { ConditionInput, ModelTable } from "./model-table.ts";
import type { AiConfig } from "./schema.ts";

/** A complete published catalog is a few megabytes. */
const MAX_CATALOGUE_BYTES = 16 * 1024 * 1024;

/** Price comparisons assume this output if the client sets no limit. */
const ASSUMED_OUTPUT_TOKENS = 500;

/** `alternatives` returns further models, under the provider's names, that the provider may use for the request. */
export type Quotes = (model: string | undefined, alternatives?: () => readonly string[]) => Quote;

/** Unless disabled, the shipped price list covers models that the operator's catalog does not include. */
export function loadPrices(
  { modelCatalog, shippedPrices: usesShipped }: Pick<AiConfig, "modelCatalog" | "shippedPrices">,
  env: Pick<CompileEnv, "readFile">,
): PriceCatalogue | undefined {
  const own =
    modelCatalog === undefined ? undefined : parsePriceCatalogue(env.readFile(modelCatalog, MAX_CATALOGUE_BYTES));
  if (!usesShipped) return own;
  return own === undefined ? shippedPrices() : eitherCatalogue(own, shippedPrices());
}

export function conditionInput(exchange: Exchange, prices: PriceCatalogue | undefined): ConditionInput {
  const { llm } = exchange.attributes;
  return {
    attributes: exchange.celAttributes,
    promptTokens: () => estimatedTokens(llm),
    priceAt({ target, model }) {
      if (prices === undefined) return undefined;
      const output = llm?.maxOutputTokens ?? ASSUMED_OUTPUT_TOKENS;
      return priceOf(prices, target.provider.name, [model], estimatedTokens(llm), output);
    },
  };
}

export function createQuotes(table: ModelTable, prices: PriceCatalogue | undefined): Quotes | undefined {
  if (prices === undefined) return undefined;
  return (requested, alternatives) => (inputTokens, outputTokens) => {
    let highest: number | undefined;
    for (const { target, model } of table.possible(requested)) {
      // A catalog may list the model under the name that the client uses.
      const names = requested === undefined ? [model] : [model, requested];
      const price = priceOf(prices, target.provider.name, names, inputTokens, outputTokens);
      if (price !== undefined && (highest === undefined || price > highest)) highest = price;
      for (const name of alternatives?.() ?? []) {
        const other = priceOf(prices, target.provider.name, [name], inputTokens, outputTokens);
        // The provider may choose the unpriced alternative, so the price has no upper bound.
        if (other === undefined) return undefined;
        if (highest === undefined || other > highest) highest = other;
      }
    }
    return highest;
  };
}
