/**
 * A budget: how much may be spent per period, and under which name in the store each key's spending is counted. The same
 * name, unit and period mean the same counters, wherever the budget stands.
 */
import type { BudgetUnit } from "./money.ts";
import { keptUntilMs, type Period, type PeriodUnit, periodOf } from "./period.ts";

export interface Budget {
  readonly name: string;
  readonly unit: BudgetUnit;
  /** As counted in the store. */
  readonly limit: number;
  readonly per: PeriodUnit;
  /** False: it only alerts. */
  readonly isHard: boolean;
  /** A call must fit with all it may write. */
  readonly reservesOutput: boolean;
  /** Percentages, in order. */
  readonly alertAt: readonly number[];
}

/** One key's part of a budget in one period. */
export interface Account {
  readonly budget: Budget;
  readonly period: Period;
  /** In the store. */
  readonly key: string;
  readonly expiresAtMs: number;
  /** For people. */
  readonly owner: string;
}

export const NO_KEY = "(no key)";

/** `key`: undefined for what all share that have none. */
export function accountOf(budget: Budget, key: string | undefined, shown: string, nowMs: number): Account {
  const period = periodOf(budget.per, nowMs);
  return {
    budget,
    period,
    key: `${accountsPrefix(budget, period)}${key === undefined ? SHARED : `${OWN}${key}`}`,
    expiresAtMs: keptUntilMs(period),
    owner: key === undefined ? NO_KEY : shown,
  };
}

/** What the accounts of a budget begin with. */
export function accountsPrefix({ name, unit, per }: Budget, period: Period): string {
  return `${name}/${unit}/${per}/${period.name}/`;
}

/** The key of an account that was found under that prefix. */
export function ownerOf(rest: string): string {
  return rest === SHARED ? NO_KEY : rest.slice(OWN.length);
}

const SHARED = "-";
const OWN = "=";
