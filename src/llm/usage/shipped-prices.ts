/**
 * The shipped price list as a catalogue, read when the first backend asks for it. Bedrock's names are also found without the
 * region that an inference profile puts in front.
 */
import { PRICE_LIST } from "./price-list.ts";
import { catalogueOf, type ModelPrices, modelPrices, type PriceCatalogue, type WrittenRates } from "./prices.ts";

const REGION = /^(?:us|eu|apac|jp|au|global|us-gov)\./;

let read: PriceCatalogue | undefined;

export function shippedPrices(): PriceCatalogue {
  read ??= withoutRegions(catalogueOf(readPriceList(PRICE_LIST)));
  return read;
}

/** One model per line, see the list. */
export function readPriceList(text: string): Map<string, ModelPrices> {
  const byName = new Map<string, ModelPrices>();
  for (const line of text.split("\n")) {
    const [provider, model, own = "", ...tiers] = line.split(" ");
    const [input, output, cacheRead, cacheWrite, reasoning] = numbers(own);
    const written = tiers.map((tier) => {
      const [above = 0, ...rates] = numbers(tier);
      const [tierInput, tierOutput, read_, write] = rates;
      return { above, ...said({ input: tierInput, output: tierOutput, cacheRead: read_, cacheWrite: write }) };
    });
    byName.set(`${provider} ${model}`, modelPrices(said({ input, output, cacheRead, cacheWrite, reasoning }), written));
  }
  return byName;
}

function numbers(text: string): (number | undefined)[] {
  return text.split(",").map((part) => (part === "" ? undefined : Number(part)));
}

function said(rates: WrittenRates): WrittenRates {
  return Object.fromEntries(Object.entries(rates).filter(([, value]) => value !== undefined));
}

function withoutRegions(list: PriceCatalogue): PriceCatalogue {
  return {
    prices: (provider, models) =>
      list.prices(provider, models) ??
      (provider === "aws.bedrock"
        ? list.prices(
            provider,
            models.map((model) => model.replace(REGION, "")),
          )
        : undefined),
  };
}
