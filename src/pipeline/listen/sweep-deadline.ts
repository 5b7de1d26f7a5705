/**
 * A time limit that is looked at from time to time, without a timer of its own. It counts sweeps: time that stands still
 * while the process does, so that a late process blames nobody.
 */
export interface Sweeper {
  /** Sweeps until now. */
  readonly sweeps: number;
  readonly sweepMs: number;
}

/** A number of sweeps that is never reached. */
const NEVER = 2 ** 30;

export class SweepDeadline {
  readonly #sweeper: Sweeper;
  #last = NEVER;

  constructor(sweeper: Sweeper) {
    this.#sweeper = sweeper;
  }

  get isOver(): boolean {
    return this.#sweeper.sweeps >= this.#last;
  }

  in(ms: number): void {
    const { sweeps, sweepMs } = this.#sweeper;
    // The next sweep may come at once.
    this.#last = sweeps + Math.ceil(ms / sweepMs) + 1;
  }

  clear(): void {
    this.#last = NEVER;
  }
}
