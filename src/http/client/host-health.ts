/**
 * Passive health checking of a server. A server that does not accept connections is ejected for a while, longer each
 * time. Then one trial request passes, and only after its response do the others follow. Only connection failures
 * count; response statuses and latency do not.
 */
import type { Clock } from "../../base/clock.ts";

/** Long enough to notice a restart, short enough not to lose capacity. */
const FIRST_EJECTION_MS = 1_000;
const LONGEST_EJECTION_MS = 30_000;
/** A trial request without a response by then is inconclusive, and another one may pass. */
const TRIAL_MS = 10_000;

export interface HealthEvents {
  ejected(reason: string, forMs: number): void;
  recovered(): void;
}

export class HostHealth {
  readonly #clock: Clock;
  readonly #events: HealthEvents;
  #failures = 0;
  #ejectedUntilMs = 0;
  #trialUntilMs = 0;

  constructor(clock: Clock, events: HealthEvents) {
    this.#clock = clock;
    this.#events = events;
  }

  /** Other servers should be preferred, if there are any. */
  get isEjected(): boolean {
    if (this.#failures === 0) return false;
    const nowMs = this.#clock.monotonicMs();
    return nowMs < this.#ejectedUntilMs || nowMs < this.#trialUntilMs;
  }

  /** Called when a request is sent to the server. After failures, it is the only one until it completes. */
  asked(): void {
    if (this.#failures > 0) this.#trialUntilMs = this.#clock.monotonicMs() + TRIAL_MS;
  }

  failed(reason: string): void {
    const nowMs = this.#clock.monotonicMs();
    this.#trialUntilMs = 0;
    // Requests that were in flight when the first one failed add no information.
    if (this.#failures > 0 && nowMs < this.#ejectedUntilMs) return;
    const forMs = Math.min(FIRST_EJECTION_MS * 2 ** Math.min(this.#failures, 16), LONGEST_EJECTION_MS);
    this.#failures += 1;
    this.#ejectedUntilMs = nowMs + forMs;
    this.#events.ejected(reason, forMs);
  }

  worked(): void {
    if (this.#failures === 0) return;
    this.#failures = 0;
    this.#trialUntilMs = 0;
    this.#events.recovered();
  }

  /** Empty while the server is healthy. */
  describe(): { readonly health?: { readonly failures: number; readonly resting: boolean } } {
    return this.#failures === 0 ? {} : { health: { failures: this.#failures, resting: this.isEjected } };
  }
}
