/**
 * Work in slices, so that others on the same thread get their turn.
 */
import type { Clock } from "../../lib/process/clock.ts";

/** The time is asked for once in so many pieces of work. */
const PIECES = 8;

/** Called after each piece of work; returns what to wait for, mostly nothing. */
export type Breathe = () => Promise<void> | undefined;

export function createPause(clock: Clock, workMs: number, rest: () => Promise<void>): Breathe {
  let pieces = 0;
  let startedMs = clock.monotonicMs();
  return () => {
    pieces += 1;
    if (pieces < PIECES) return undefined;
    pieces = 0;
    if (clock.monotonicMs() - startedMs < workMs) return undefined;
    return rest().then(() => {
      startedMs = clock.monotonicMs();
    });
  };
}
