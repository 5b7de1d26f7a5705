/**
 * What a call may cost before it is made: by the prices of the targets that could answer it, at the dearest, because any of
 * them may.
 */
import type { Quote } from "../../../llm/dialects/llm-call.ts";
import { type PriceCatalogue, priceOf } from "../../../llm/usage/prices.ts";
import type { ModelTable } from "./model-table.ts";

export type Quotes = (model: string | undefined) => Quote;

/** undefined without any prices. */
export function createQuotes(table: ModelTable, prices: PriceCatalogue | undefined): Quotes | undefined {
  if (prices === undefined) return undefined;
  return (requested) => (inputTokens, outputTokens) => {
    let dearest: number | undefined;
    for (const { target, model } of table.possible(requested)) {
      const { name } = target.provider;
      const price =
        priceOf(prices, name, model, inputTokens, outputTokens) ??
        // A catalogue may know the client's own word for it.
        (requested === undefined ? undefined : priceOf(prices, name, requested, inputTokens, outputTokens));
      if (price !== undefined && (dearest === undefined || price > dearest)) dearest = price;
    }
    return dearest;
  };
}
