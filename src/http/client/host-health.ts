/**
 * Whether a server can be reached, learned from the requests that it gets: one that does not accept a connection rests for a
 * while, longer each time; then one request is let through, and only when that is answered do the others follow. Only
 * failures to connect count: what a server answers, or how slowly, is no reason to leave it.
 */
import type { Clock } from "../../base/clock.ts";

/** Long enough for a restart to be noticed, short enough that nobody misses the server. */
const FIRST_REST_MS = 1_000;
const LONGEST_REST_MS = 30_000;
/** A request that was let through and is not answered by then says nothing: another may try. */
const TRIAL_MS = 10_000;

export interface HealthEvents {
  rests(reason: string, forMs: number): void;
  isBack(): void;
}

export class HostHealth {
  readonly #clock: Clock;
  readonly #events: HealthEvents;
  #failures = 0;
  #restsUntilMs = 0;
  #trialUntilMs = 0;

  constructor(clock: Clock, events: HealthEvents) {
    this.#clock = clock;
    this.#events = events;
  }

  /** Others should be asked instead, if there are any. */
  get isResting(): boolean {
    if (this.#failures === 0) return false;
    const nowMs = this.#clock.monotonicMs();
    return nowMs < this.#restsUntilMs || nowMs < this.#trialUntilMs;
  }

  /** A request goes to it: the only one for now, if it failed before. */
  asked(): void {
    if (this.#failures > 0) this.#trialUntilMs = this.#clock.monotonicMs() + TRIAL_MS;
  }

  failed(reason: string): void {
    const nowMs = this.#clock.monotonicMs();
    this.#trialUntilMs = 0;
    // Requests that were on their way when the first failed say nothing new.
    if (this.#failures > 0 && nowMs < this.#restsUntilMs) return;
    const forMs = Math.min(FIRST_REST_MS * 2 ** Math.min(this.#failures, 16), LONGEST_REST_MS);
    this.#failures += 1;
    this.#restsUntilMs = nowMs + forMs;
    this.#events.rests(reason, forMs);
  }

  worked(): void {
    if (this.#failures === 0) return;
    this.#failures = 0;
    this.#trialUntilMs = 0;
    this.#events.isBack();
  }

  /** Nothing while all is well. */
  describe(): { readonly health?: { readonly failures: number; readonly resting: boolean } } {
    return this.#failures === 0 ? {} : { health: { failures: this.#failures, resting: this.isResting } };
  }
}
