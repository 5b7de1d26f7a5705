/**
 * A clock that only tests advance, with real timers, for gateways whose sockets need real timers.
 */
import { type Clock, systemClock } from "../../../src/base/clock.ts";

export interface ShiftedClock extends Clock {
  advance(ms: number): void;
}

export function shiftedClock(): ShiftedClock {
  const startedAt = systemClock.now();
  const startedMs = systemClock.monotonicMs();
  let shiftedMs = 0;
  return {
    ...systemClock,
    now: () => startedAt + shiftedMs,
    monotonicMs: () => startedMs + shiftedMs,
    advance(ms) {
      shiftedMs += ms;
    },
  };
}
