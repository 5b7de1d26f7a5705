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

/** A function of the platform, such as `trim`, takes far less for each character than the expression for each node. */
export interface TextCost {
  readonly budget: Budget;
  readonly charactersPerUnit: number;
  /** True for functions that read the texts in a list or map too. */
  readonly isDeep: boolean;
}

const COST_PER_ITEM = 0.25;

/** Charges for the text in an operand, before a function outside of a loop reads it. */
export function payForText(cost: TextCost, value: CelValue): CelValue {
  const { budget, charactersPerUnit, isDeep } = cost;
  if (typeof value === "string" || value instanceof Uint8Array) spend(budget, value.length / charactersPerUnit);
  else if (!isDeep) return value;
  else if (isCelList(value)) {
    spend(budget, value.size * COST_PER_ITEM);
    for (const item of value) payForText(cost, item);
  } else if (isCelMap(value)) {
    spend(budget, value.size * COST_PER_ITEM);
    for (const [key, item] of value) {
      payForText(cost, key);
      payForText(cost, item);
    }
  }
  return value;
}

/** An empty text is searched for by a slower loop. */
const COST_PER_MATCH = 0.12;
const COST_PER_EMPTY_MATCH = 1;
const REPLACED_CHARACTERS_PER_UNIT = 64;

/** Charges for the matches of `search` in a text, before they are replaced. Returns the text. */
export function payForReplacements(budget: Budget, text: CelValue, search: CelValue, times?: CelValue): CelValue {
  if (typeof text !== "string" || typeof search !== "string") return text;
  spend(budget, text.length / REPLACED_CHARACTERS_PER_UNIT);
  const most = typeof times === "bigint" && times >= 0n ? Number(times) : Number.POSITIVE_INFINITY;
  const perMatch = search === "" ? COST_PER_EMPTY_MATCH : COST_PER_MATCH;
  const affordable = Math.ceil(budget.left / perMatch) + 1;
  spend(budget, countMatches(text, search, Math.min(most, affordable)) * perMatch);
  return text;
}

/** Charges for the parts of a text, before it is split, what `payForValue` charges for a list of them. */
export function payForParts(budget: Budget, text: CelValue, separator: CelValue): CelValue {
  if (typeof text !== "string" || typeof separator !== "string") return text;
  const affordable = Math.ceil(budget.left / COST_PER_NODE) + 1;
  const separators = countMatches(text, separator, affordable);
  const characters = Math.max(0, text.length - separators * separator.length);
  spend(budget, 1 + (separators + 1) * COST_PER_NODE + characters / CHARACTERS_PER_UNIT);
  return text;
}

function countMatches(text: string, search: string, most: number): number {
  if (search === "") return Math.min(text.length, most);
  let count = 0;
  for (let at = text.indexOf(search); at >= 0 && count < most; at = text.indexOf(search, at + search.length))
    count += 1;
  return count;
}

/** Charges for an operand from which a function builds a new string or list. */
export function payForCopy(budget: Budget, value: CelValue): CelValue {
  return payForValue(budget, value, COPIED_CHARACTERS_PER_UNIT);
}
