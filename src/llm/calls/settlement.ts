/**
 * What a call cost, once, however it ended: the provider's counts, else an estimate of what was asked and delivered,
 * or nothing at all if the provider refused. Goes into the exchange's facts, where limits, log and CEL find it, and
 * into metrics.
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
  /** Counting tokens or listing models costs nothing and is not an operation of a model. */
  readonly #free: boolean;
  readonly #operation: string;
  readonly #startedMs: number;
  #firstByteMs: number | undefined;
  /** The model's name as the provider is asked for it. */
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

  /** `settle` gets the tokens of the call that begins now. The one before it, at a target that was given up, used none. */
  chargeQuota(settle: (usedTokens: number) => void): void {
    this.#charged?.(0);
    this.#charged = settle;
  }

  /** Of a request in parts that failed or was given up: what was used before. It is paid whatever comes after. */
  addSpent(tokens: number): void {
    this.#spent += tokens;
  }

  calling(model: string): void {
    this.#asked = model === "" ? undefined : model;
  }

  /** The provider knows the model that it was asked for. */
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
      // Some providers never say their model; it is the one that was asked for.
      if (this.#answered && this.#asked !== undefined) this.#facts.responseModel ??= this.#asked;
      this.#finish(undefined);
    }
  }

  /** The provider was not reached, or refused: nothing was used. `errorType`: a word or a status. */
  unused(errorType: string): void {
    if (this.#settled) return;
    writeUsage(this.#facts, { inputTokens: 0, outputTokens: 0, totalTokens: 0 });
    this.#finish(errorType);
  }

  /** The answer is one that was paid before: this call costs nothing, and no provider worked for it. */
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
