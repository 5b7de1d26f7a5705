/**
 * Measures the longest piece of work on the main thread. A piece ends where the gateway lets other work run: after a step
 * of sliced work, and after a chunk of a stream. CPU time of the thread, because other processes use the cores too, and
 * threads that collect garbage do not block it.
 */
import type { Steps } from "../../src/base/sliced-work.ts";
import { threadCpuMs } from "../support/cpu-time.ts";

let longestMs = 0;
/** Undefined while only steps are counted, because reading the clock takes steps. */
let sinceMs: number | undefined;

export function beginTurns(): void {
  longestMs = 0;
  sinceMs = threadCpuMs();
}

export function endTurn(): void {
  if (sinceMs === undefined) return;
  const nowMs = threadCpuMs();
  longestMs = Math.max(longestMs, nowMs - sinceMs);
  sinceMs = nowMs;
}

/** Ends the last turn. */
export function longestTurnMs(): number {
  endTurn();
  return longestMs;
}

/** Work that the gateway does in another thread does not count. */
export function inWorker<T>(work: () => T): T {
  endTurn();
  const result = work();
  if (sinceMs !== undefined) sinceMs = threadCpuMs();
  return result;
}

/** Runs sliced work to its end. */
export function finishInTurns<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
    endTurn();
  }
}
