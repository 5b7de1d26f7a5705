/**
 * The real clock with a hand on it: timers run as they do, but a test can let windows pass. For whole gateways, whose
 * sockets need real timers.
 */
import { type Clock, systemClock } from "../../../src/lib/process/clock.ts";

export interface ShiftedClock extends Clock {
  advance(ms: number): void;
}

export function shiftedClock(): ShiftedClock {
  let shiftedMs = 0;
  return {
    ...systemClock,
    now: () => systemClock.now() + shiftedMs,
    monotonicMs: () => systemClock.monotonicMs() + shiftedMs,
    advance(ms) {
      shiftedMs += ms;
    },
  };
}
