/**
 * A catalogue of prices: US dollars per million tokens by provider and model. Without an entry for a model its cost
 * is unknown, not zero.
 */
import { z } from "zod";
import type { LlmFacts } from "../../core/facts.ts";

/** Decimal texts keep what a file says; plain numbers are accepted too. */
const rate = z.union([
  z.number().min(0),
  z
    .string()
    .regex(/^\d+(\.\d+)?$/, "expected a decimal number")
    .transform(Number),
]);

const catalogueSchema = z.strictObject({
  providers: z.record(
    z.string(),
    z.strictObject({
      models: z.record(
        z.string(),
        z.looseObject({
          rates: z.looseObject({
            input: rate.optional(),
            output: rate.optional(),
            cacheRead: rate.optional(),
            cacheWrite: rate.optional(),
            reasoning: rate.optional(),
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

export interface PriceCatalogue {
  rates(provider: string, model: string): Rates | undefined;
}

/** Throws an Error that says what is wrong. */
export function parsePriceCatalogue(text: string): PriceCatalogue {
  const parsed = catalogueSchema.safeParse(JSON.parse(text));
  if (!parsed.success)
    throw new Error(parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`).join("; "));
  const byName = new Map<string, Rates>();
  for (const [provider, { models }] of Object.entries(parsed.data.providers)) {
    for (const [model, { rates }] of Object.entries(models)) {
      const input = rates.input ?? 0;
      const output = rates.output ?? 0;
      byName.set(`${provider} ${model}`, {
        input,
        output,
        cacheRead: rates.cacheRead ?? input,
        cacheWrite: rates.cacheWrite ?? input,
        reasoning: rates.reasoning ?? output,
      });
    }
  }
  return { rates: (provider, model) => byName.get(`${provider} ${model}`) };
}

/** What so many tokens cost in US dollars, none of them cached; undefined if the model has no price. */
export function priceOf(
  catalogue: PriceCatalogue,
  provider: string,
  model: string,
  inputTokens: number,
  outputTokens: number,
): number | undefined {
  const rates = catalogue.rates(provider, model);
  return rates && (inputTokens * rates.input + outputTokens * rates.output) / 1_000_000;
}

/** In US dollars; undefined if the model has no price. `asked`: the model's name as the provider was asked for it. */
export function costOf(catalogue: PriceCatalogue, facts: LlmFacts, asked?: string): number | undefined {
  const { provider = "", inputTokens, outputTokens } = facts;
  if (inputTokens === undefined || outputTokens === undefined) return undefined;
  // A dated name in the answer, the name that was sent, the client's own word for it: the most exact that has a price.
  const rates = [facts.responseModel, asked, facts.requestModel]
    .flatMap((model) => (model === undefined ? [] : [catalogue.rates(provider, model)]))
    .find((found) => found !== undefined);
  if (rates === undefined) return undefined;
  const cached = facts.cachedInputTokens ?? 0;
  const written = facts.cacheCreationInputTokens ?? 0;
  const reasoning = Math.min(facts.reasoningTokens ?? 0, outputTokens);
  const millionths =
    Math.max(0, inputTokens - cached - written) * rates.input +
    cached * rates.cacheRead +
    written * rates.cacheWrite +
    (outputTokens - reasoning) * rates.output +
    reasoning * rates.reasoning;
  return Number((millionths / 1_000_000).toFixed(9));
}
