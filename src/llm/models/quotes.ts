/**
 * What a call may cost before it is made: by the prices of the targets that could answer it, at the dearest, because any of
 * them may.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { CompileEnv } from "../../core/policy.ts";
import type { Quote } from "../request/llm-call.ts";
import { eitherCatalogue, type PriceCatalogue, parsePriceCatalogue, priceOf, shippedPrices } from "../usage/prices.ts";
import { estimatedTokens } from "../usage/usage.ts";
import type { ConditionInput, ModelTable } from "./model-table.ts";
import type { AiConfig } from "./schema.ts";

/** A file with all that is published is a few megabytes. */
const MAX_CATALOGUE_BYTES = 16 * 1024 * 1024;

/** For comparing prices, where the client does not say how long the answer may be. */
const ASSUMED_OUTPUT_TOKENS = 500;

/** `alternatives`: further models that the provider may use for the request, under the provider's names. */
export type Quotes = (model: string | undefined, alternatives?: () => readonly string[]) => Quote;

/** The operator's own prices, and the shipped list for what these do not name. */
export function pricesOf(
  { modelCatalog, shippedPrices: usesShipped }: Pick<AiConfig, "modelCatalog" | "shippedPrices">,
  env: Pick<CompileEnv, "readFile">,
): PriceCatalogue | undefined {
  const own =
    modelCatalog === undefined ? undefined : parsePriceCatalogue(env.readFile(modelCatalog, MAX_CATALOGUE_BYTES));
  if (!usesShipped) return own;
  return own === undefined ? shippedPrices() : eitherCatalogue(own, shippedPrices());
}

/** The call of this exchange, as conditions of virtual models see it. */
export function conditionInput(exchange: Exchange, prices: PriceCatalogue | undefined): ConditionInput {
  const { llm } = exchange.facts;
  return {
    attributes: exchange.attributes,
    promptTokens: () => estimatedTokens(llm),
    priceAt({ target, model }) {
      if (prices === undefined) return undefined;
      const output = llm?.maxOutputTokens ?? ASSUMED_OUTPUT_TOKENS;
      return priceOf(prices, target.provider.name, [model], estimatedTokens(llm), output);
    },
  };
}

/** undefined without any prices. */
export function createQuotes(table: ModelTable, prices: PriceCatalogue | undefined): Quotes | undefined {
  if (prices === undefined) return undefined;
  return (requested, alternatives) => (inputTokens, outputTokens) => {
    let dearest: number | undefined;
    for (const { target, model } of table.possible(requested)) {
      // A catalogue may know the client's own word for it.
      const names = requested === undefined ? [model] : [model, requested];
      const price = priceOf(prices, target.provider.name, names, inputTokens, outputTokens);
      if (price !== undefined && (dearest === undefined || price > dearest)) dearest = price;
      for (const name of alternatives?.() ?? []) {
        const other = priceOf(prices, target.provider.name, [name], inputTokens, outputTokens);
        // An alternative without a price makes the whole call one: the provider may choose it.
        if (other === undefined) return undefined;
        if (dearest === undefined || other > dearest) dearest = other;
      }
    }
    return dearest;
  };
}
