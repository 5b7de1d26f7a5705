/**
 * Settles a call exactly once, however it ended: with the provider's usage, with an estimate of input and delivered
 * output, or with zero if the provider rejected it. Writes the result to the exchange's facts, which limits, log and
 * CEL read, and to the metrics.
 */

import type { Clock } from "../../base/clock.ts";
import type { LlmFacts } from "../../core/facts.ts";
import type { Dialect, Format } from "../request/dialect.ts";
import type { LlmMetrics } from "../usage/llm-metrics.ts";
import { costOf, type PriceCatalogue } from "../usage/prices.ts";
import { settleUsage, type TapReport } from "../usage/response-usage.ts";
import { writeUsage } from "../usage/usage.ts";

export interface SettlementOptions {
  readonly clock: Clock;
  readonly metrics: LlmMetrics;
  readonly prices: PriceCatalogue | undefined;
}

/** `gen_ai.operation.name` of the semantic conventions. */
const OPERATIONS: Readonly<Partial<Record<Format, string>>> = {
  chat: "chat",
  responses: "chat",
  messages: "chat",
  converse: "chat",
  invoke: "chat",
  embeddings: "embeddings",
  generateContent: "generate_content",
};

/** The provider received the prompt, but no response: only the input is charged. */
export const PROMPT_ONLY: TapReport = {
  usage: undefined,
  responseModel: undefined,
  uncountedTokens: 0,
  complete: false,
};

/** The part of a settlement that a response uses. */
export type ResponseSettlement = Pick<Settlement, "firstByte" | "used" | "unused">;

export class Settlement {
  readonly #env: SettlementOptions;
  readonly #facts: LlmFacts;
  /** Token counting and model lists are free and are not model operations. */
  readonly #free: boolean;
  readonly #operation: string;
  readonly #startedMs: number;
  #firstByteMs: number | undefined;
  /** The model name sent to the provider. */
  #asked: string | undefined;
  #charged: ((usedTokens: number) => void) | undefined;
  #spent = 0;
  #answered = false;
  #settled = false;

  constructor(env: SettlementOptions, facts: LlmFacts, dialect: Dialect) {
    this.#env = env;
    this.#facts = facts;
    this.#free = dialect.free;
    this.#operation = OPERATIONS[dialect.format] ?? "other";
    this.#startedMs = env.clock.monotonicMs();
  }

  /**
   * Registers the quota charge of the call that starts now. A previous charge, for a failed target, is settled with 0
   * tokens.
   */
  chargeQuota(settle: (usedTokens: number) => void): void {
    this.#charged?.(0);
    this.#charged = settle;
  }

  /** Adds tokens used by a split request that failed or was aborted. They are billed whatever happens later. */
  addSpent(tokens: number): void {
    this.#spent += tokens;
  }

  calling(model: string): void {
    this.#asked = model === "" ? undefined : model;
  }

  /** The provider accepted the requested model. */
  modelAccepted(): void {
    this.#answered = true;
  }

  firstByte(): void {
    this.#firstByteMs ??= this.#env.clock.monotonicMs();
  }

  used(report: TapReport): void {
    if (this.#settled) return;
    if (this.#free) this.unused("");
    else {
      settleUsage(this.#facts, report);
      // Some providers do not report the model; it is the requested one.
      if (this.#answered && this.#asked !== undefined) this.#facts.responseModel ??= this.#asked;
      this.#finish(undefined);
    }
  }

  /**
   * Settles the call with zero tokens. `errorType` is an error code, an HTTP status, or empty if there was no error.
   */
  unused(errorType: string): void {
    if (this.#settled) return;
    writeUsage(this.#facts, { inputTokens: 0, outputTokens: 0, totalTokens: 0 });
    this.#finish(errorType);
  }

  /** The response came from the cache, so the call is free. */
  replayed(): void {
    if (this.#settled) return;
    this.#settled = true;
    writeUsage(this.#facts, { inputTokens: 0, outputTokens: 0, totalTokens: 0 });
    this.#facts.cost = 0;
  }

  #finish(errorType: string | undefined): void {
    this.#settled = true;
    if (this.#spent > 0) addInput(this.#facts, this.#spent);
    this.#charged?.((this.#facts.inputTokens ?? 0) + (this.#facts.outputTokens ?? 0));
    const { prices, metrics, clock } = this.#env;
    const cost = prices ? costOf(prices, this.#facts, this.#asked) : undefined;
    if (cost !== undefined) this.#facts.cost = cost;
    if (this.#free) return;
    const endMs = clock.monotonicMs();
    metrics.record(this.#facts, {
      durationMs: endMs - this.#startedMs,
      firstByteMs: this.#firstByteMs === undefined ? undefined : this.#firstByteMs - this.#startedMs,
      errorType,
      operation: this.#operation,
    });
  }
}

function addInput(facts: LlmFacts, tokens: number): void {
  facts.inputTokens = (facts.inputTokens ?? 0) + tokens;
  facts.totalTokens = (facts.totalTokens ?? 0) + tokens;
}
