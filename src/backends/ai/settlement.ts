/**
 * What a call cost, once, however it ended: the provider's counts, else an estimate of what was asked and delivered,
 * or nothing at all if the provider refused. Goes into the exchange's facts, where limits, log and CEL find it, and
 * into metrics.
 */
import type { LlmFacts } from "../../core/exchange.ts";
import type { Clock } from "../../lib/clock.ts";
import type { LlmMetrics } from "../../llm/llm-metrics.ts";
import { costOf, type PriceCatalogue } from "../../llm/prices.ts";
import { writeUsage } from "../../llm/usage.ts";
import { settleUsage, type TapReport } from "../../llm/usage-tap.ts";

export interface SettlementEnv {
  readonly clock: Clock;
  readonly metrics: LlmMetrics;
  readonly prices: PriceCatalogue | undefined;
}

/** As an answer sees it. */
export type CallSettlement = Pick<Settlement, "firstByte" | "counted" | "nothing">;

export class Settlement {
  readonly #env: SettlementEnv;
  readonly #facts: LlmFacts;
  /** Counting tokens or listing models costs nothing and is not an operation of a model. */
  readonly #free: boolean;
  readonly #startedMs: number;
  #firstByteMs: number | undefined;
  #settled = false;

  constructor(env: SettlementEnv, facts: LlmFacts, free: boolean) {
    this.#env = env;
    this.#facts = facts;
    this.#free = free;
    this.#startedMs = env.clock.monotonicMs();
  }

  firstByte(): void {
    this.#firstByteMs ??= this.#env.clock.monotonicMs();
  }

  counted(report: TapReport): void {
    if (this.#settled) return;
    if (this.#free) this.nothing();
    else {
      settleUsage(this.#facts, report);
      this.#finish(false);
    }
  }

  /** The provider was not reached, or refused: nothing was used. */
  nothing(): void {
    if (this.#settled) return;
    writeUsage(this.#facts, { inputTokens: 0, outputTokens: 0, totalTokens: 0 });
    this.#finish(!this.#free);
  }

  #finish(failed: boolean): void {
    this.#settled = true;
    const { prices, metrics, clock } = this.#env;
    const cost = prices ? costOf(prices, this.#facts) : undefined;
    if (cost !== undefined) this.#facts.cost = cost;
    if (this.#free) return;
    const endMs = clock.monotonicMs();
    metrics.record(this.#facts, {
      durationMs: endMs - this.#startedMs,
      firstByteMs: this.#firstByteMs === undefined ? undefined : this.#firstByteMs - this.#startedMs,
      failed,
    });
  }
}
