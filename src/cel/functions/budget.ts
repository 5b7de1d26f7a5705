/**
 * What one evaluation may cost. The CEL library has no cost hook, so the compiled tree is rewritten to
 * pay for itself (rewrite.ts): a loop pays for all its rounds before the first, calls inside a loop pay for
 * the size of what they read, and regular expressions pay for their steps. Who runs out gets an error,
 * and the whole evaluation fails, even where `||` or `default()` would have covered that error.
 */
import { type CelValue, isCelList, isCelMap } from "@bufbuild/cel";

/** One unit is about 0.1 µs, so that the worst expression holds the event loop for about 40 ms. */
export const MAX_COST = 400_000;
/** Measured: one node of a loop body takes 0.1 to 0.3 µs. */
const COST_PER_NODE = 2;
/** String functions read about 3 ns per character. */
export const CHARACTERS_PER_UNIT = 32;

export const COST_EXCEEDED = "the expression costs too much on these values";

export interface Budget {
  /** Negative once it was overdrawn; it stays so until the next evaluation. */
  left: number;
}

export interface Loop {
  readonly budget: Budget;
  readonly nodesPerRound: number;
}

export function createBudget(): Budget {
  return { left: MAX_COST };
}

export function spend(budget: Budget, cost: number): void {
  budget.left -= cost;
  if (budget.left < 0) throw new Error(COST_EXCEEDED);
}

/**
 * Rounds are paid for in advance, also those that `exists` would not reach: what an expression may
 * cost then depends on how large its values are, never on the order in them.
 */
export function payForLoop(loop: Loop, range: CelValue): CelValue {
  const rounds = isCelList(range) || isCelMap(range) ? range.size : 0;
  spend(loop.budget, rounds * loop.nodesPerRound * COST_PER_NODE);
  return range;
}

/** Walks a value as deep as equality or conversion would; the walk itself is bounded by what it charges. */
export function payForValue(budget: Budget, value: CelValue): CelValue {
  if (typeof value === "string") spend(budget, 1 + value.length / CHARACTERS_PER_UNIT);
  else if (value instanceof Uint8Array) spend(budget, 1 + value.length / CHARACTERS_PER_UNIT);
  else if (isCelList(value)) {
    for (const item of value) payForValue(budget, item);
  } else if (isCelMap(value)) {
    for (const [key, item] of value) {
      payForValue(budget, key);
      payForValue(budget, item);
    }
  }
  spend(budget, 1);
  return value;
}
