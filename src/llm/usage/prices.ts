/**
 * Reads price catalogs, which list US dollars per million tokens by provider and model. The cost of a model without an
 * entry is unknown, not zero.
 */
import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import type { LlmAttributes } from "../../core/request-attributes.ts";
import { readJson } from "../../json/read-json.ts";
import { PRICE_LIST } from "./price-list.ts";

const CATALOGUE = peerInput("file/prices");

const rate = z.union([
  z.number().min(0),
  z
    .string()
    .regex(/^\d+(\.\d+)?$/, "expected a decimal number")
    .transform(Number),
]);

const plainRates = {
  input: rate.optional(),
  output: rate.optional(),
  cacheRead: rate.optional(),
  cacheWrite: rate.optional(),
};

const catalogueSchema = z.strictObject({
  providers: z.record(
    z.string(),
    z.strictObject({
      models: z.record(
        z.string(),
        z.looseObject({
          rates: z.looseObject({
            ...plainRates,
            reasoning: rate.optional(),
            tiers: z.array(z.looseObject({ above: z.number().min(0), ...plainRates })).optional(),
          }),
        }),
      ),
    }),
  ),
});

interface Rates {
  readonly input: number;
  readonly output: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
  readonly reasoning: number;
}

/** The tier with the highest threshold that the prompt exceeds applies to the whole call. */
export interface ModelPrices extends Rates {
  readonly tiers?: readonly (Rates & { readonly above: number })[];
}

export interface WrittenRates {
  readonly input?: number | undefined;
  readonly output?: number | undefined;
  readonly cacheRead?: number | undefined;
  readonly cacheWrite?: number | undefined;
  readonly reasoning?: number | undefined;
}

export interface PriceCatalogue {
  prices(provider: string, models: readonly string[]): ModelPrices | undefined;
}

/** Throws an `InputError` if the text is not JSON, or an error that lists the schema problems. */
export function parsePriceCatalogue(text: string): PriceCatalogue {
  const parsed = catalogueSchema.safeParse(readJson(CATALOGUE, text));
  if (!parsed.success)
    throw new Error(parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`).join("; "));
  const byName = new Map<string, ModelPrices>();
  for (const [provider, { models }] of Object.entries(parsed.data.providers))
    for (const [model, { rates }] of Object.entries(models))
      byName.set(`${provider} ${model}`, modelPrices(rates, rates.tiers ?? []));
  return createCatalogue(byName);
}

export function createCatalogue(byName: ReadonlyMap<string, ModelPrices>): PriceCatalogue {
  return {
    prices(provider, models) {
      for (const model of models) {
        const found = byName.get(`${provider} ${model}`);
        if (found !== undefined) return found;
      }
      return undefined;
    },
  };
}

/** A price in `own` under any of a model's names takes precedence over `other`. */
export function eitherCatalogue(own: PriceCatalogue, other: PriceCatalogue): PriceCatalogue {
  return { prices: (provider, models) => own.prices(provider, models) ?? other.prices(provider, models) };
}

/** Missing rates for cached and reasoning tokens default to the input and output rates. */
export function modelPrices(
  rates: WrittenRates,
  tiers: readonly (WrittenRates & { readonly above: number })[],
): ModelPrices {
  const base = completed(rates);
  if (tiers.length === 0) return base;
  const complete = tiers.map((tier) => ({ ...completed({ ...withoutCache(base), ...tier }), above: tier.above }));
  return { ...base, tiers: complete.sort((one, other) => one.above - other.above) };
}

function completed({
  input = 0,
  output = 0,
  cacheRead = input,
  cacheWrite = input,
  reasoning = output,
}: WrittenRates): Rates {
  return { input, output, cacheRead, cacheWrite, reasoning };
}

function withoutCache({ input, output }: Rates): WrittenRates {
  return { input, output };
}

function ratesFor(prices: ModelPrices, inputTokens: number): Rates {
  return prices.tiers?.findLast(({ above }) => inputTokens > above) ?? prices;
}

/** Returns US dollars for uncached tokens, or undefined if the model has no price. */
export function priceOf(
  catalogue: PriceCatalogue,
  provider: string,
  models: readonly string[],
  inputTokens: number,
  outputTokens: number,
): number | undefined {
  const prices = catalogue.prices(provider, models);
  const rates = prices && ratesFor(prices, inputTokens);
  return rates && (inputTokens * rates.input + outputTokens * rates.output) / 1_000_000;
}

/**
 * Returns US dollars, or undefined if the model has no price or its token counts are unknown. `sentModel` is the model
 * name that was sent to the provider.
 */
export function costOf(catalogue: PriceCatalogue, attributes: LlmAttributes, sentModel?: string): number | undefined {
  const { provider = "", inputTokens, outputTokens } = attributes;
  if (inputTokens === undefined || outputTokens === undefined) return undefined;
  // The name in the response is the most exact, followed by the name that was sent and the client's name.
  const names = [attributes.responseModel, sentModel, attributes.requestModel].filter((name) => name !== undefined);
  const prices = catalogue.prices(provider, names);
  if (prices === undefined) return undefined;
  const rates = ratesFor(prices, inputTokens);
  const cached = attributes.cachedInputTokens ?? 0;
  const written = attributes.cacheCreationInputTokens ?? 0;
  const reasoning = Math.min(attributes.reasoningTokens ?? 0, outputTokens);
  const millionths =
    Math.max(0, inputTokens - cached - written) * rates.input +
    cached * rates.cacheRead +
    written * rates.cacheWrite +
    (outputTokens - reasoning) * rates.output +
    reasoning * rates.reasoning;
  return Number((millionths / 1_000_000).toFixed(9));
}

const REGION = /^(?:us|eu|apac|jp|au|global|us-gov)\./;

let read: PriceCatalogue | undefined;

export function shippedPrices(): PriceCatalogue {
  read ??= withoutRegions(createCatalogue(readPriceList(PRICE_LIST)));
  return read;
}

export function readPriceList(text: string): Map<string, ModelPrices> {
  const byName = new Map<string, ModelPrices>();
  for (const line of text.split("\n")) {
    const [provider, model, own = "", ...tiers] = line.split(" ");
    const [input, output, cacheRead, cacheWrite, reasoning] = numbers(own);
    const written = tiers.map((tier) => {
      const [above = 0, ...rates] = numbers(tier);
      const [tierInput, tierOutput, read_, write] = rates;
      return {
        above,
        ...withoutUndefined({ input: tierInput, output: tierOutput, cacheRead: read_, cacheWrite: write }),
      };
    });
    byName.set(
      `${provider} ${model}`,
      modelPrices(withoutUndefined({ input, output, cacheRead, cacheWrite, reasoning }), written),
    );
  }
  return byName;
}

function numbers(text: string): (number | undefined)[] {
  return text.split(",").map((part) => (part === "" ? undefined : Number(part)));
}

function withoutUndefined(rates: WrittenRates): WrittenRates {
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
