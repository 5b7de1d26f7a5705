/**
 * Ejects failing targets. An ejected target is tried last instead of being excluded.
 */
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { duration } from "../../core/schema.ts";

export const cooldown = z
  .strictObject({
    allowedFailures: z
      .int()
      .min(0)
      .max(1000)
      .default(0)
      .describe("Consecutive failures to allow before a pause. Default: 0."),
    initial: duration().default(1_000).describe("The first pause; each further failure doubles it. Default: 1s."),
    max: duration().default(30_000).describe("The maximum pause. Default: 30s."),
    maxRetryAfter: duration().default(600_000).describe("The maximum `retry-after` to honor. Default: 10m."),
  })
  .prefault({})
  .describe("How long a failed provider is tried last.");

export interface Cooldown {
  readonly allowedFailures: number;
  readonly initialMs: number;
  readonly maxMs: number;
  readonly maxRetryAfterMs: number;
}

const MAX_DOUBLINGS = 16;

export class Health {
  readonly #clock: Clock;
  readonly #cooldown: Cooldown;
  #failures = 0;
  #ejectedUntilMs = 0;

  constructor(clock: Clock, cooldown: Cooldown) {
    this.#clock = clock;
    this.#cooldown = cooldown;
  }

  get isEjected(): boolean {
    return this.#failures > 0 && this.#clock.monotonicMs() < this.#ejectedUntilMs;
  }

  recordFailure(retryAfterSeconds: number | undefined): void {
    const { allowedFailures, initialMs, maxMs, maxRetryAfterMs } = this.#cooldown;
    const counted = this.#failures - allowedFailures;
    this.#failures += 1;
    const now = this.#clock.monotonicMs();
    if (retryAfterSeconds !== undefined)
      this.#ejectedUntilMs = now + Math.min(Math.max(0, retryAfterSeconds * 1000), maxRetryAfterMs);
    else if (counted >= 0)
      this.#ejectedUntilMs = now + Math.min(initialMs * 2 ** Math.min(counted, MAX_DOUBLINGS), maxMs);
  }

  recordSuccess(): void {
    this.#failures = 0;
  }

  describe(): Record<string, unknown> {
    return { failures: this.#failures, resting: this.isEjected };
  }
}
