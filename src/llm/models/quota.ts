/**
 * Limits the requests and tokens per minute of a deployment. A call is admitted while the limit is not reached, so its
 * tokens may exceed the limit.
 */

import { z } from "zod";
import type { Clock } from "../../base/clock.ts";

const WINDOW_MS = 60_000;

const MAX_PER_MINUTE = 1_000_000_000_000;

export const perMinute = z
  .strictObject({
    requests: z.int().min(1).max(MAX_PER_MINUTE).optional().describe("Requests per minute."),
    tokens: z.int().min(1).max(MAX_PER_MINUTE).optional().describe("Tokens per minute, input and output."),
  })
  .optional()
  .describe(
    "Limits the calls to this deployment per minute. When the quota is exhausted, the next deployment is tried; if there is none, the client gets 429.",
  );

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

  /** Returns the seconds until the window ends, rounded up, and at least 1. */
  secondsLeft(): number {
    const nowMs = this.#clock.monotonicMs();
    // Computing `start + WINDOW_MS - now` could exceed a minute because of rounding.
    const passedMs = nowMs - (this.#windowStartMs ?? nowMs);
    return Math.max(1, Math.ceil((WINDOW_MS - passedMs) / 1000));
  }

  /** The returned function replaces the estimate with the actual tokens. Later calls of it have no effect. */
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
      // Usage of an earlier window no longer counts.
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
