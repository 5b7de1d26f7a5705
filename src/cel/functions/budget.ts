/**
 * Defines the cost budget of an evaluation. The CEL library has no cost hook, so rewrite.ts adds the accounting to
 * the tree. An exhausted budget fails the whole evaluation, even inside `||` or `default()`.
 */
import type { CelValue } from "@bufbuild/cel";
import { isCelList, isCelMap } from "../values/values.ts";

export const MAX_COST = 400_000;
const COST_PER_NODE = 2;
export const CHARACTERS_PER_UNIT = 32;

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
