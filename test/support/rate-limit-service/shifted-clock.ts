/**
 * A clock that only a test moves, with real timers: windows pass when the test says so, however slow the machine is. For
 * whole gateways, whose sockets need real timers.
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
