/**
 * The only door to time. Everything that waits or measures gets a Clock passed in, so that a test can
 * advance time instead of sleeping. `monotonicMs` never jumps with the wall clock: limits and durations use it.
 */
import { performance } from "node:perf_hooks";

export interface Timer {
  cancel(): void;
}

export interface Clock {
  /** Wall clock, milliseconds since the epoch: for timestamps that people and tokens carry. */
  now(): number;
  /** Milliseconds (with fractions) from an arbitrary start: for durations, windows and timeouts. */
  monotonicMs(): number;
  /** Calls back once. The timer alone does not keep the process alive. */
  after(delayMs: number, callback: () => void): Timer;
  /** Calls back again and again until cancelled. The timer alone does not keep the process alive. */
  every(intervalMs: number, callback: () => void): Timer;
}

/** Node takes longer delays for one millisecond; 24 days are as good as never. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** One is made for each request: no closure. */
class SystemTimer implements Timer {
  readonly #handle: NodeJS.Timeout;

  constructor(handle: NodeJS.Timeout) {
    this.#handle = handle;
  }

  cancel(): void {
    clearTimeout(this.#handle);
  }
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(delayMs, callback) {
    const handle = setTimeout(callback, Math.min(delayMs, MAX_DELAY_MS));
    handle.unref();
    return new SystemTimer(handle);
  },
  every(intervalMs, callback) {
    const handle = setInterval(callback, Math.min(intervalMs, MAX_DELAY_MS));
    handle.unref();
    return { cancel: () => clearInterval(handle) };
  },
};

/** What `process.hrtime` says when this thread's monotonic clock stands at 0: the same base in all threads. */
export function clockStartMs(): number {
  return Number(process.hrtime.bigint()) / 1e6 - performance.now();
}

/** The clock of another thread: its monotonic time is that of the thread whose clock started then. */
export function clockSince(startMs: number): Clock {
  const aheadMs = clockStartMs() - startMs;
  return { ...systemClock, monotonicMs: () => performance.now() + aheadMs };
}

/** Keeps the process alive while it waits for something that has no socket of its own. */
export function keepAwake(): Timer {
  const handle = setInterval(() => undefined, MAX_DELAY_MS);
  return { cancel: () => clearInterval(handle) };
}

/** A promise that resolves after the delay on the given clock. */
export function wait(clock: Clock, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delayMs, resolve);
  });
}
