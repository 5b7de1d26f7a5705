/**
 * Measures the longest piece of work on the main thread. A piece ends where the gateway lets other work run: after a step
 * of sliced work, and after a chunk of a stream. CPU time, because other processes use the cores too.
 */
import type { Steps } from "../../src/base/sliced-work.ts";

let longestMs = 0;
let sinceMs = 0;

export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

export function beginTurns(): void {
  longestMs = 0;
  sinceMs = cpuMs();
}

export function endTurn(): void {
  const nowMs = cpuMs();
  longestMs = Math.max(longestMs, nowMs - sinceMs);
  sinceMs = nowMs;
}

/** Ends the last turn. */
export function longestTurnMs(): number {
  endTurn();
  return longestMs;
}

/** Runs sliced work to its end. */
export function finishInTurns<T>(steps: Steps<T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
    endTurn();
  }
}
