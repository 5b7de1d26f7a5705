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
const RECENT_MINUTES = 60;
const MINUTE_MS = 60_000;

interface Minute {
  minute: number;
  calls: number;
  failed: number;
}

export class Health {
  readonly #clock: Clock;
  readonly #cooldown: Cooldown;
  readonly #recent: Minute[] = Array.from({ length: RECENT_MINUTES }, () => ({ minute: -1, calls: 0, failed: 0 }));
  #failures = 0;
  #lastFailureMs: number | undefined = undefined;
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
    this.#countCall(now).failed += 1;
    this.#lastFailureMs = now;
    if (retryAfterSeconds !== undefined)
      this.#ejectedUntilMs = now + Math.min(Math.max(0, retryAfterSeconds * 1000), maxRetryAfterMs);
    else if (counted >= 0)
      this.#ejectedUntilMs = now + Math.min(initialMs * 2 ** Math.min(counted, MAX_DOUBLINGS), maxMs);
  }

  recordSuccess(): void {
    this.#failures = 0;
    this.#countCall(this.#clock.monotonicMs());
  }

  /** `recent` counts the calls of the last hour, with the current minute. */
  describe(): Record<string, unknown> {
    const nowMs = this.#clock.monotonicMs();
    const minute = Math.floor(nowMs / MINUTE_MS);
    const recent = { calls: 0, failed: 0 };
    for (const one of this.#recent) {
      if (one.minute <= minute - RECENT_MINUTES) continue;
      recent.calls += one.calls;
      recent.failed += one.failed;
    }
    const agoMs = this.#lastFailureMs === undefined ? undefined : Math.round(nowMs - this.#lastFailureMs);
    return {
      failures: this.#failures,
      resting: this.isEjected,
      recent,
      ...(agoMs === undefined ? {} : { lastFailureAgoMs: agoMs }),
    };
  }

  #countCall(nowMs: number): Minute {
    const minute = Math.floor(nowMs / MINUTE_MS);
    const current = this.#recent[minute % RECENT_MINUTES] as Minute;
    if (current.minute !== minute) Object.assign(current, { minute, calls: 0, failed: 0 });
    current.calls += 1;
    return current;
  }
}
