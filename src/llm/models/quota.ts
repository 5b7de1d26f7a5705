/**
 * What a deployment may be asked per minute, as its contract says: one that has no more is passed over until its minute ends. A
 * call is admitted while anything is left; its tokens are estimated first, and counted when its answer has ended.
 */

import { z } from "zod";
import type { Clock } from "../../base/clock.ts";

const WINDOW_MS = 60_000;

/** Far above any contract. */
const MAX_PER_MINUTE = 1_000_000_000_000;

export const perMinute = z
  .strictObject({
    requests: z.int().min(1).max(MAX_PER_MINUTE).optional().describe("Requests per minute."),
    tokens: z.int().min(1).max(MAX_PER_MINUTE).optional().describe("Tokens per minute, input and output."),
  })
  .optional()
  .describe("What this deployment may be asked per minute. When it is used up, the next one is tried, or 429.");

export interface PerMinute {
  readonly requests?: number | undefined;
  readonly tokens?: number | undefined;
}

export class Quota {
  readonly #clock: Clock;
  readonly #limits: PerMinute;
  #windowStartMs: number | undefined = undefined;
  #requests = 0;
  #tokens = 0;

  constructor(clock: Clock, limits: PerMinute) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get countsTokens(): boolean {
    return this.#limits.tokens !== undefined;
  }

  isExhausted(): boolean {
    this.#refresh();
    const { requests, tokens } = this.#limits;
    return (requests !== undefined && this.#requests >= requests) || (tokens !== undefined && this.#tokens >= tokens);
  }

  /** Until the minute ends, rounded up, at least 1. */
  secondsLeft(): number {
    const nowMs = this.#clock.monotonicMs();
    // What has passed first: the sum of a start and a minute is rounded, and could be more than a minute away.
    const passedMs = nowMs - (this.#windowStartMs ?? nowMs);
    return Math.max(1, Math.ceil((WINDOW_MS - passedMs) / 1000));
  }

  /** A call begins, of so many requests. Returns what puts the real count in the estimate's place, once. */
  begin(estimatedTokens: number, requests = 1): (usedTokens: number) => void {
    this.#refresh();
    this.#windowStartMs ??= this.#clock.monotonicMs();
    const window = this.#windowStartMs;
    this.#requests += requests;
    this.#tokens += estimatedTokens;
    let isSettled = false;
    return (usedTokens) => {
      if (isSettled) return;
      isSettled = true;
      this.#refresh();
      // What belongs to a minute that has ended is gone with it.
      if (this.#windowStartMs === window) this.#tokens = Math.max(0, this.#tokens + usedTokens - estimatedTokens);
    };
  }

  describe(): Record<string, unknown> {
    this.#refresh();
    return { requestsThisMinute: this.#requests, tokensThisMinute: this.#tokens };
  }

  #refresh(): void {
    if (this.#windowStartMs === undefined || this.#clock.monotonicMs() < this.#windowStartMs + WINDOW_MS) return;
    this.#windowStartMs = undefined;
    this.#requests = 0;
    this.#tokens = 0;
  }
}
