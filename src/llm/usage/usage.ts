/**
 * Reads token usage from any provider's usage object, and computes its cost from price catalogs, which list US
 * dollars per million tokens by provider and model. Cached tokens count as input. The cost of a model without an
 * entry is unknown, not zero.
 */

import { z } from "zod";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Outcome } from "../../core/policy.ts";
import type { LlmAttributes } from "../../core/request-attributes.ts";
import type { HeaderList } from "../../http/headers.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { readJson } from "../../json/read-json.ts";
import { PRICE_LIST } from "./price-list.ts";

export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly totalTokens: number;
  readonly cachedInputTokens?: number;
  readonly cacheCreationInputTokens?: number;
  readonly reasoningTokens?: number;
}

/** Larger counts are clamped. */
const MAX_TOKENS = 1_000_000_000;

export function readUsage(value: unknown): Usage | undefined {
  if (!isMembers(value)) return undefined;
  if ("prompt_tokens" in value || "completion_tokens" in value) return openAiChat(value);
  if ("input_tokens" in value || "output_tokens" in value) {
    return "input_tokens_details" in value || "total_tokens" in value ? openAiResponses(value) : anthropic(value);
  }
  if ("promptTokenCount" in value || "candidatesTokenCount" in value || "totalTokenCount" in value)
    return gemini(value);
  if ("inputTokens" in value || "outputTokens" in value) return bedrock(value);
  if ("inputTokenCount" in value || "outputTokenCount" in value) return bedrockInvocation(value);
  const total = count(value.total_tokens);
  // A total without details counts as input, so that the total is correct.
  return total === undefined ? undefined : { inputTokens: total, outputTokens: 0, totalTokens: total };
}

/** Reads the token counts from Bedrock's `invoke` headers, because the model's own response may have no usage. */
export function readHeaderUsage(headers: HeaderList): Usage | undefined {
  const value = (name: string): number | undefined => {
    const text = headers.get(`x-amzn-bedrock-${name}-token-count`);
    return text !== undefined && /^\d{1,10}$/.test(text) ? Number(text) : undefined;
  };
  return readUsage({
    inputTokenCount: value("input"),
    outputTokenCount: value("output"),
    cacheReadInputTokenCount: value("cache-read-input"),
    cacheWriteInputTokenCount: value("cache-write-input"),
  });
}

/** Later counts replace earlier counts, because Anthropic's `message_delta` updates the counts of `message_start`. */
export function mergeUsage(earlier: Members | undefined, later: Members): Members {
  if (earlier === undefined) return later;
  const merged: Record<string, unknown> = { ...earlier };
  for (const [key, value] of Object.entries(later)) if (value !== null && value !== undefined) merged[key] = value;
  return merged;
}

export function writeUsage(attributes: LlmAttributes, usage: Usage): void {
  attributes.inputTokens = usage.inputTokens;
  attributes.outputTokens = usage.outputTokens;
  attributes.totalTokens = usage.totalTokens;
  if (usage.cachedInputTokens !== undefined) attributes.cachedInputTokens = usage.cachedInputTokens;
  if (usage.cacheCreationInputTokens !== undefined)
    attributes.cacheCreationInputTokens = usage.cacheCreationInputTokens;
  if (usage.reasoningTokens !== undefined) attributes.reasoningTokens = usage.reasoningTokens;
}

function openAiChat(usage: Members): Usage | undefined {
  const promptDetails = members(usage.prompt_tokens_details);
  const completionDetails = members(usage.completion_tokens_details);
  return sum({
    input: count(usage.prompt_tokens),
    output: count(usage.completion_tokens),
    total: count(usage.total_tokens),
    cached:
      count(promptDetails.cached_tokens) ??
      count(usage.prompt_cache_hit_tokens) ??
      count(usage.cache_read_input_tokens),
    written: count(promptDetails.cache_write_tokens) ?? count(usage.cache_creation_input_tokens),
    reasoning: count(completionDetails.reasoning_tokens),
  });
}

function openAiResponses(usage: Members): Usage | undefined {
  return sum({
    input: count(usage.input_tokens),
    output: count(usage.output_tokens),
    total: count(usage.total_tokens),
    cached: count(members(usage.input_tokens_details).cached_tokens),
    written: count(members(usage.input_tokens_details).cache_write_tokens),
    reasoning: count(members(usage.output_tokens_details).reasoning_tokens),
  });
}

function anthropic(usage: Members): Usage | undefined {
  const cached = count(usage.cache_read_input_tokens);
  const written = count(usage.cache_creation_input_tokens);
  return sum({
    input: withCache(count(usage.input_tokens), cached, written),
    output: count(usage.output_tokens),
    cached,
    written,
    reasoning: count(members(usage.output_tokens_details).thinking_tokens),
  });
}

function gemini(usage: Members): Usage | undefined {
  const thoughts = count(usage.thoughtsTokenCount);
  const prompt = count(usage.promptTokenCount);
  const answer = count(usage.candidatesTokenCount);
  const tools = count(usage.toolUsePromptTokenCount) ?? 0;
  return sum({
    input: prompt === undefined ? undefined : prompt + tools,
    output: answer === undefined && thoughts === undefined ? undefined : (answer ?? 0) + (thoughts ?? 0),
    total: count(usage.totalTokenCount),
    cached: count(usage.cachedContentTokenCount),
    reasoning: thoughts,
  });
}

function bedrock(usage: Members): Usage | undefined {
  const cached = count(usage.cacheReadInputTokens);
  const written = count(usage.cacheWriteInputTokens);
  return sum({
    input: withCache(count(usage.inputTokens), cached, written),
    output: count(usage.outputTokens),
    cached,
    written,
  });
}

function bedrockInvocation(metrics: Members): Usage | undefined {
  const cached = count(metrics.cacheReadInputTokenCount);
  const written = count(metrics.cacheWriteInputTokenCount);
  return sum({
    input: withCache(count(metrics.inputTokenCount), cached, written),
    output: count(metrics.outputTokenCount),
    cached,
    written,
  });
}

function withCache(
  input: number | undefined,
  cached: number | undefined,
  written: number | undefined,
): number | undefined {
  return input === undefined && cached === undefined && written === undefined
    ? undefined
    : (input ?? 0) + (cached ?? 0) + (written ?? 0);
}

function sum(counts: {
  input: number | undefined;
  output: number | undefined;
  total?: number | undefined;
  cached?: number | undefined;
  written?: number | undefined;
  reasoning?: number | undefined;
}): Usage | undefined {
  if (counts.input === undefined && counts.output === undefined && counts.total === undefined) return undefined;
  const inputTokens = counts.input ?? Math.max(0, (counts.total ?? 0) - (counts.output ?? 0));
  const reported = counts.output ?? Math.max(0, (counts.total ?? 0) - inputTokens);
  // Some servers exclude reasoning from the output count but not from the total.
  const isApart = counts.reasoning !== undefined && counts.total === inputTokens + reported + counts.reasoning;
  const outputTokens = isApart ? reported + (counts.reasoning ?? 0) : reported;
  const totalTokens = Math.max(inputTokens + outputTokens, counts.total ?? 0);
  const usage: { -readonly [Name in keyof Usage]: Usage[Name] } = { inputTokens, outputTokens, totalTokens };
  if (counts.cached !== undefined) usage.cachedInputTokens = counts.cached;
  if (counts.written !== undefined) usage.cacheCreationInputTokens = counts.written;
  if (counts.reasoning !== undefined) usage.reasoningTokens = counts.reasoning;
  return usage;
}

function count(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 ? Math.floor(Math.min(value, MAX_TOKENS)) : undefined;
}

function members(value: unknown): Members {
  return isMembers(value) ? value : {};
}

/** Keeps sums of untrusted counts within exact integer arithmetic. */
const MAX_AMOUNT = 1_000_000_000;

/** Clamps to the range from 0 to `MAX_AMOUNT`. Returns undefined if the value is not a number. */
export function clampCount(value: unknown): number | undefined {
  if (typeof value !== "number" || Number.isNaN(value)) return undefined;
  return Math.trunc(Math.max(0, Math.min(MAX_AMOUNT, value)));
}

/** A minimum of 1 prevents concurrent calls without an estimate from all passing on the last token. */
export function estimatedTokens(llm: LlmAttributes | undefined): number {
  return Math.max(1, clampCount(llm?.estimatedTokens) ?? 1);
}

export function outputTokens(llm: LlmAttributes | undefined): number {
  return clampCount(llm?.maxOutputTokens) ?? 0;
}

/** Returns undefined if the usage is unknown. */
export function usedTokens(llm: LlmAttributes | undefined, outcome: Outcome): number | undefined {
  const input = clampCount(llm?.inputTokens);
  const output = clampCount(llm?.outputTokens);
  // A total above the sum can include tokens that the provider charges but does not itemize, such as reasoning.
  if (input !== undefined && output !== undefined) return Math.max(input + output, clampCount(llm?.totalTokens) ?? 0);
  const known = clampCount(llm?.totalTokens) ?? output ?? input;
  if (known !== undefined) return known;
  return usedNoTokens(outcome) ? 0 : undefined;
}

/** After a timeout or a client disconnect, the provider may still generate output. */
function usedNoTokens(outcome: Outcome): boolean {
  return outcome.end === "complete" && outcome.status !== undefined && outcome.status >= 400 && outcome.status !== 504;
}

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
interface ModelPrices extends Rates {
  readonly tiers?: readonly (Rates & { readonly above: number })[];
}

interface WrittenRates {
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

function createCatalogue(byName: ReadonlyMap<string, ModelPrices>): PriceCatalogue {
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
function modelPrices(rates: WrittenRates, tiers: readonly (WrittenRates & { readonly above: number })[]): ModelPrices {
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
