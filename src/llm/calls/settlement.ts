/**
 * Settles a call at most once: with the provider's usage, with an estimate, or with zero.
 */

import type { Clock } from "../../base/clock.ts";
import type { LlmAttributes } from "../../core/request-attributes.ts";
import type { Dialect, Format } from "../request/dialect.ts";
import type { Cost } from "../request/endpoint-cost.ts";
import { LlmRequestAttributes } from "../request/llm-attributes.ts";
import type { LlmMetrics } from "../usage/llm-metrics.ts";
import { costOf, type PriceCatalogue } from "../usage/prices.ts";
import { settleUsage, type TapReport } from "../usage/response-usage.ts";
import { writeUsage } from "../usage/usage.ts";

export interface SettlementOptions {
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
