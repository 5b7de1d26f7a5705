/**
 * Provides time and timers. Code that receives a Clock can be tested without waiting.
 */
import { performance } from "node:perf_hooks";

export interface Timer {
  cancel(): void;
}

export interface Clock {
  /** Returns wall-clock time in milliseconds since the epoch. */
  now(): number;
  /** Returns milliseconds, with fractions, since an arbitrary start. Changes of the wall clock do not affect it. */
  monotonicMs(): number;
  /** Calls back once. The timer does not keep the process alive. */
  after(delayMs: number, callback: () => void): Timer;
  /** Calls back at each interval until canceled. The timer does not keep the process alive. */
  every(intervalMs: number, callback: () => void): Timer;
}

/** Node treats longer delays as 1 ms, so delays are capped at this value (24 days). */
const MAX_DELAY_MS = 2 ** 31 - 1;

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

/**
 * Returns the time of `process.hrtime`, in milliseconds, at which this thread's monotonic clock is 0. All threads share
 * that time base.
 */
export function clockStartMs(): number {
  return Number(process.hrtime.bigint()) / 1e6 - performance.now();
}

/** Creates a clock whose monotonic time equals that of the thread whose clock started at `startMs`. */
export function clockSince(startMs: number): Clock {
  const aheadMs = clockStartMs() - startMs;
  return { ...systemClock, monotonicMs: () => performance.now() + aheadMs };
}

/** Keeps the process alive until the timer is canceled. */
export function keepAwake(): Timer {
  const handle = setInterval(() => undefined, MAX_DELAY_MS);
  return { cancel: () => clearInterval(handle) };
}

export function wait(clock: Clock, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delayMs, resolve);
  });
}

const ISO_TIME = /^(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)([Zz]|[+-]\d\d:\d\d)?)?$/;

const AGE = /^(\d{1,9})([smhd])$/;
const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses a time, or an age such as `15m` before `nowMs`. Returns NaN for other text. */
export function parseTimeOrAge(text: string, nowMs: number): number {
  const [, count, unit = ""] = AGE.exec(text) ?? [];
  return count === undefined ? parseTime(text) : nowMs - Number(count) * (UNIT_MS[unit] as number);
}

/** Parses an ISO 8601 date or time. Without a zone, it is in UTC. Returns NaN for other text. */
export function parseTime(text: string): number {
  const [, date, time = "00:00", zone = "Z"] = ISO_TIME.exec(text) ?? [];
  return date === undefined ? Number.NaN : Date.parse(`${date}T${time}${zone}`);
}
