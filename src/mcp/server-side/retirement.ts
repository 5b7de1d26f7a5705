/**
 * What a new configuration has no use for: its calls are waited for, as long as they may take, and then it is closed.
 */
import type { Clock, Timer } from "../../base/clock.ts";

const LOOK_EVERY_MS = 200;

export interface Leaving {
  readonly pendingCalls: number;
  /** Ends calls that take too long. */
  sweep(nowMs: number): void;
  close(): Promise<void>;
}

export class Retirement {
  readonly #clock: Clock;
  readonly #emptied: () => void;
  readonly #leaving = new Set<Leaving>();
  readonly #closing = new Set<Promise<void>>();
  #timer: Timer | undefined = undefined;

  /** `emptied` is called whenever the last one is closed. */
  constructor(clock: Clock, emptied: () => void) {
    this.#clock = clock;
    this.#emptied = emptied;
  }

  get isEmpty(): boolean {
    return this.#leaving.size === 0 && this.#closing.size === 0;
  }

  add(one: Leaving): void {
    this.#leaving.add(one);
    this.#timer ??= this.#clock.every(LOOK_EVERY_MS, this.#look);
    this.#look();
  }

  /** Waits for nothing any more. */
  async close(): Promise<void> {
    for (const one of this.#leaving) this.#close(one);
    await Promise.all(this.#closing);
  }

  readonly #look = (): void => {
    const nowMs = this.#clock.monotonicMs();
    for (const one of this.#leaving) {
      one.sweep(nowMs);
      if (one.pendingCalls === 0) this.#close(one);
    }
    if (this.#leaving.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  };

  #close(one: Leaving): void {
    this.#leaving.delete(one);
    const closing: Promise<void> = one.close().finally(() => {
      this.#closing.delete(closing);
      if (this.isEmpty) this.#emptied();
    });
    this.#closing.add(closing);
    if (this.#leaving.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
