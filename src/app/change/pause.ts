/**
 * Work in slices, so that others get their turn: on the same thread (`createPause`) or on the same processors (`createShare`).
 */
import type { Clock } from "../../lib/process/clock.ts";

/** The time is asked for once in so many pieces of work. */
const PIECES = 8;
const SLICE_MS = 1;
/** Shorter rests cost more than they give. */
const SHORTEST_REST_MS = 0.25;
const LONGEST_REST_MS = 20;
/** However busy the others are, a quarter of the time is left for the work. */
const REST_RATIO = 3;
/** What was not used may be used later, and what was used too much is made up for later: up to this. */
const CREDIT_MS = 2;
const DEBT_MS = 50;

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

export interface Meter {
  monotonicMs(): number;
  /** Processor time of all threads of the process. */
  cpuMs(): number;
  /** Blocks this thread. */
  rest(ms: number): void;
}

/**
 * Rests so long that all threads of the process take so many processors on average. The work alone takes one, but it also
 * has the compiler and the collector work on threads of their own, with the priority of those that serve.
 */
export function createShare({ monotonicMs, cpuMs, rest }: Meter, processors: number): Breathe {
  let pieces = 0;
  let debtMs = 0;
  let sinceMs = monotonicMs();
  let sinceCpuMs = cpuMs();
  return () => {
    pieces += 1;
    if (pieces < PIECES) return undefined;
    pieces = 0;
    const nowMs = monotonicMs();
    const passedMs = nowMs - sinceMs;
    if (passedMs < SLICE_MS) return undefined;
    const nowCpuMs = cpuMs();
    const tooMuchMs = (nowCpuMs - sinceCpuMs) / processors - passedMs;
    debtMs = Math.min(DEBT_MS, Math.max(-CREDIT_MS, debtMs + tooMuchMs));
    const restMs = Math.min(debtMs, passedMs * REST_RATIO, LONGEST_REST_MS);
    if (restMs >= SHORTEST_REST_MS) {
      rest(restMs);
      // What others did meanwhile is theirs. Rests take longer than they should: what was too long is not lost.
      sinceMs = monotonicMs();
      debtMs = Math.max(-CREDIT_MS, debtMs - (sinceMs - nowMs));
      sinceCpuMs = cpuMs();
    } else {
      sinceMs = nowMs;
      sinceCpuMs = nowCpuMs;
    }
    return undefined;
  };
}
