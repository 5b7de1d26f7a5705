/**
 * Implements passive health checking of a server. A server that does not accept connections is ejected for a growing
 * time, up to a limit. A response resets its health.
 */
import type { Clock } from "../../base/clock.ts";

const FIRST_EJECTION_MS = 1_000;
const LONGEST_EJECTION_MS = 30_000;
/** If a trial request has no result within this time, the next request is another trial. */
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

  get isEjected(): boolean {
    if (this.#failures === 0) return false;
    const nowMs = this.#clock.monotonicMs();
    return nowMs < this.#ejectedUntilMs || nowMs < this.#trialUntilMs;
  }

  /**
   * Called when a request is sent to the server. After a failure, the request is a trial, and the server stays ejected
   * until the trial has a result or TRIAL_MS have passed.
   */
  requestSent(): void {
    if (this.#failures > 0) this.#trialUntilMs = this.#clock.monotonicMs() + TRIAL_MS;
  }

  failed(reason: string): void {
    const nowMs = this.#clock.monotonicMs();
    this.#trialUntilMs = 0;
    // Requests that were already in flight at the first failure do not extend the ejection.
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

  describe(): { readonly health?: { readonly failures: number; readonly resting: boolean } } {
    return this.#failures === 0 ? {} : { health: { failures: this.#failures, resting: this.isEjected } };
  }
}
