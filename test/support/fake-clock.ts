/**
 * A clock that tests advance. Timers run in order when they are due.
 */
import type { Clock, Timer } from "../../src/base/clock.ts";

export interface FakeClock extends Clock {
  /** Moves time on and runs what falls due, in order; lets promises settle in between. */
  advance(ms: number): Promise<void>;
  pending(): number;
}

export function fakeClock(startMs = Date.UTC(2026, 0, 1)): FakeClock {
  let nowMs = 0;
  let order = 0;
  const timers = new Set<{ atMs: number; order: number; everyMs: number | undefined; callback: () => void }>();

  function add(delayMs: number, everyMs: number | undefined, callback: () => void): Timer {
    const timer = { atMs: nowMs + delayMs, order: order++, everyMs, callback };
    timers.add(timer);
    return { cancel: () => void timers.delete(timer) };
  }

  return {
    now: () => startMs + nowMs,
    monotonicMs: () => nowMs,
    after: (delayMs, callback) => add(delayMs, undefined, callback),
    every: (intervalMs, callback) => add(intervalMs, intervalMs, callback),
    pending: () => timers.size,
    async advance(ms) {
      const untilMs = nowMs + ms;
      await settle();
      for (;;) {
        const due = [...timers]
          .filter(({ atMs }) => atMs <= untilMs)
          .sort((a, b) => a.atMs - b.atMs || a.order - b.order)[0];
        if (!due) break;
        nowMs = Math.max(nowMs, due.atMs);
        if (due.everyMs === undefined) timers.delete(due);
        else due.atMs += due.everyMs;
        due.callback();
        await settle();
      }
      nowMs = untilMs;
      await settle();
    },
  };
}

/** Lets what was resolved run, including what that resolves. */
function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
