/**
 * Defines the cost budget of an evaluation. The CEL library has no cost hook, so rewrite.ts adds the accounting to
 * the tree. An exhausted budget fails the whole evaluation, even inside `||` or `default()`.
 */
import type { CelValue } from "@bufbuild/cel";
import { isCelList, isCelMap } from "../values/values.ts";

/**
 * One unit is about 60 ns of CPU time in compiled code, and several times that in a process that has just started. The
 * whole budget then takes less than 50 ms, the longest that an expression may block other requests.
 */
export const MAX_COST = 100_000;
const COST_PER_NODE = 2;
export const CHARACTERS_PER_UNIT = 32;
/** Functions that build new strings take longer per character than comparisons. */
const COPIED_CHARACTERS_PER_UNIT = 8;

export const COST_EXCEEDED = "the expression costs too much on these values";

export interface Budget {
  /** Holds the remaining cost, which is negative once the budget is exceeded. */
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
 * Charges for all iterations in advance, even if `exists` would stop early, so that the cost depends on the size of the
 * input and not on its order.
 */
export function payForLoop(loop: Loop, range: CelValue): CelValue {
  const rounds = isCelList(range) || isCelMap(range) ? range.size : 0;
  spend(loop.budget, rounds * loop.nodesPerRound * COST_PER_NODE);
  return range;
}

/** Charges for a deep traversal, for example by an equality test. The budget also bounds this traversal. */
export function payForValue(budget: Budget, value: CelValue, perUnit = CHARACTERS_PER_UNIT): CelValue {
  if (typeof value === "string" || value instanceof Uint8Array) spend(budget, 1 + value.length / perUnit);
  else if (isCelList(value)) {
    for (const item of value) payForValue(budget, item, perUnit);
  } else if (isCelMap(value)) {
    for (const [key, item] of value) {
      payForValue(budget, key, perUnit);
      payForValue(budget, item, perUnit);
    }
  }
  spend(budget, 1);
  return value;
}

/** Charges for an operand from which a function builds a new string or list. */
export function payForCopy(budget: Budget, value: CelValue): CelValue {
  return payForValue(budget, value, COPIED_CHARACTERS_PER_UNIT);
}
