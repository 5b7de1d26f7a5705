/**
 * Settles a call at most once: with the provider's usage, with an estimate, or with zero. Then it records the metrics of
 * the call under the OpenTelemetry semantic conventions for generative AI. The model label is the name in the response
 * or a name that the provider accepted, so that clients cannot create series with arbitrary names.
 */
import type { Clock } from "../base/clock.ts";
import type { LlmAttributes } from "../core/request-attributes.ts";
import { boundedLabel, type Histogram, type Metrics } from "../record/log/metrics.ts";
import type { Cost, Dialect, Format } from "./request/dialect.ts";
import { LlmRequestAttributes } from "./request/llm-call.ts";
import { settleUsage, type TapReport } from "./usage/response-usage.ts";
import { costOf, type PriceCatalogue, writeUsage } from "./usage/usage.ts";

interface SettlementOptions {
  readonly clock: Clock;
  readonly metrics: LlmMetrics;
  readonly prices: PriceCatalogue | undefined;
}

const OPERATIONS: Readonly<Partial<Record<Format, string>>> = {
  chat: "chat",
  responses: "chat",
  messages: "chat",
  converse: "chat",
  invoke: "chat",
  embeddings: "embeddings",
  generateContent: "generate_content",
};

/** Reports a call without a response, so that only the input is charged. */
export const PROMPT_ONLY: TapReport = {
  usage: undefined,
  responseModel: undefined,
  uncountedTokens: 0,
  complete: false,
};

export type ResponseSettlement = Pick<Settlement, "firstByte" | "used" | "unused">;

export class Settlement {
  readonly #env: SettlementOptions;
  readonly #attributes: LlmAttributes;
  readonly #cost: Cost;
  readonly #operation: string;
  readonly #startedMs: number;
  #firstByteMs: number | undefined;
  #sentModel: string | undefined;
  #settleQuota: ((usedTokens: number) => void) | undefined;
  #spent = 0;
  #isModelAccepted = false;
  #settled = false;

  constructor(env: SettlementOptions, attributes: LlmAttributes, dialect: Dialect) {
    this.#env = env;
    this.#attributes = attributes;
    this.#cost = LlmRequestAttributes.costOf(attributes);
    this.#operation = OPERATIONS[dialect.format] ?? "other";
    this.#startedMs = env.clock.monotonicMs();
  }

  /** Registers the quota charge of the current attempt and settles that of the previous attempt with 0. */
  chargeQuota(settle: (usedTokens: number) => void): void {
    this.#settleQuota?.(0);
    this.#settleQuota = settle;
  }

  /** Adds the tokens used by a split request that failed or was aborted. */
  addSpent(tokens: number): void {
    this.#spent += tokens;
  }

  calling(model: string): void {
    this.#sentModel = model === "" ? undefined : model;
  }

  modelAccepted(): void {
    this.#isModelAccepted = true;
  }

  firstByte(): void {
    this.#firstByteMs ??= this.#env.clock.monotonicMs();
  }

  used(report: TapReport): void {
    if (this.#settled) return;
    if (this.#cost === "free" || (this.#cost === "unmetered" && report.usage === undefined)) this.unused("");
    else {
      settleUsage(this.#attributes, report);
      // If the response does not name the model, the model that was sent to the provider is recorded.
      if (this.#isModelAccepted && this.#sentModel !== undefined) this.#attributes.responseModel ??= this.#sentModel;
      this.#finish(undefined);
    }
  }

  unused(errorType: string): void {
    if (this.#settled) return;
    writeUsage(this.#attributes, { inputTokens: 0, outputTokens: 0, totalTokens: 0 });
    this.#finish(errorType);
  }

  replayed(): void {
    if (this.#settled) return;
    this.#settled = true;
    writeUsage(this.#attributes, { inputTokens: 0, outputTokens: 0, totalTokens: 0 });
    this.#attributes.cost = 0;
  }

  #finish(errorType: string | undefined): void {
    this.#settled = true;
    if (this.#spent > 0) addInput(this.#attributes, this.#spent);
    this.#settleQuota?.((this.#attributes.inputTokens ?? 0) + (this.#attributes.outputTokens ?? 0));
    const { prices, metrics, clock } = this.#env;
    const cost = prices ? costOf(prices, this.#attributes, this.#sentModel) : undefined;
    if (cost !== undefined) this.#attributes.cost = cost;
    if (this.#cost !== "metered" && !this.#attributes.totalTokens) return;
    const endMs = clock.monotonicMs();
    metrics.record(this.#attributes, {
      durationMs: endMs - this.#startedMs,
      firstByteMs: this.#firstByteMs === undefined ? undefined : this.#firstByteMs - this.#startedMs,
      errorType,
      operation: this.#operation,
    });
  }
}

function addInput(attributes: LlmAttributes, tokens: number): void {
  attributes.inputTokens = (attributes.inputTokens ?? 0) + tokens;
  attributes.totalTokens = (attributes.totalTokens ?? 0) + tokens;
}

interface LlmTimes {
  readonly durationMs: number;
  readonly firstByteMs: number | undefined;
  readonly errorType: string | undefined;
  readonly operation: string;
}

export interface LlmMetrics {
  record(attributes: LlmAttributes, times: LlmTimes): void;
  failover(provider: string, cause: string): void;
}

const MAX_KNOWN_SERIES = 1000;
/** Providers choose the names of models in responses. */
const MAX_LABELED_MODELS = 200;
/** The semantic conventions recommend these buckets and two larger buckets. */
const TOKEN_BUCKETS = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304];
const DURATION_BUCKETS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

export function createLlmMetrics(metrics: Metrics): LlmMetrics {
  const labels = ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_response_model"];
  const tokens = metrics.histogram("gen_ai_client_token_usage", "Tokens per call, by type.", TOKEN_BUCKETS, [
    "gen_ai_token_type",
    ...labels,
  ]);
  // Cache tokens are part of the input, so they have a separate metric to keep sums over all token types correct.
  const cacheTokens = metrics.histogram(
    "gen_ai_client_cache_token_usage",
    "Input tokens that were read from or written to a provider's prompt cache, per call.",
    TOKEN_BUCKETS,
    ["gen_ai_token_type", ...labels],
  );
  const duration = metrics.histogram(
    "gen_ai_client_operation_duration_seconds",
    "Seconds from the call to the end of its answer.",
    DURATION_BUCKETS,
    [...labels, "error_type"],
  );
  const firstByte = metrics.histogram(
    "gen_ai_server_time_to_first_token_seconds",
    "Seconds from the call to the first byte of its answer.",
    DURATION_BUCKETS,
    labels,
  );
  const cost = metrics.counter(
    "gen_ai_client_cost_usd_total",
    "Cost of calls by the price catalog, in US dollars.",
    labels,
  );

  const failovers = metrics.counter(
    "gateway_llm_failovers_total",
    "Calls that went on to the next provider, by the one that failed and why.",
    ["gen_ai_provider_name", "cause"],
  );

  const modelLabels = new Map<string, (model: string) => string>();
  const modelLabel = (provider: string, model: string): string => {
    let labelOf = modelLabels.get(provider);
    if (labelOf === undefined) {
      labelOf = boundedLabel(MAX_LABELED_MODELS);
      modelLabels.set(provider, labelOf);
    }
    return labelOf(model);
  };

  /** Caches series, because building the labels costs more than recording a value. */
  const known = new Map<string, Series>();
  const seriesOf = (operation: string, provider: string, model: string): Series => {
    const key = `${operation} ${provider} ${model}`;
    const found = known.get(key);
    if (found) return found;
    const made: Series = {
      duration: duration.labels(operation, provider, model, ""),
      firstByte: firstByte.labels(operation, provider, model),
      input: tokens.labels("input", operation, provider, model),
      output: tokens.labels("output", operation, provider, model),
    };
    if (known.size < MAX_KNOWN_SERIES) known.set(key, made);
    return made;
  };

  return {
    failover: (provider, cause) => failovers.labels(provider, cause).add(1),
    record(attributes, times) {
      const provider = attributes.provider ?? "";
      const model = modelLabel(provider, attributes.responseModel ?? "");
      const { operation, errorType } = times;
      if (errorType !== undefined) {
        duration.labels(operation, provider, model, errorType || "_OTHER").observe(times.durationMs / 1000);
        return;
      }
      const series = seriesOf(operation, provider, model);
      series.duration.observe(times.durationMs / 1000);
      if (times.firstByteMs !== undefined) series.firstByte.observe(times.firstByteMs / 1000);
      if (attributes.inputTokens !== undefined) series.input.observe(attributes.inputTokens);
      if (attributes.outputTokens !== undefined) series.output.observe(attributes.outputTokens);
      const { cachedInputTokens: cached, cacheCreationInputTokens: written } = attributes;
      if (cached) cacheTokens.labels("cache_read", operation, provider, model).observe(cached);
      if (written) cacheTokens.labels("cache_write", operation, provider, model).observe(written);
      if (attributes.cost !== undefined) cost.labels(operation, provider, model).add(attributes.cost);
    },
  };
}

interface Series {
  readonly duration: Histogram;
  readonly firstByte: Histogram;
  readonly input: Histogram;
  readonly output: Histogram;
}
