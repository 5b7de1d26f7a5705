/**
 * Amounts of budgets as the store counts them: whole numbers. Dollars are counted in billionths, as exact as the price of
 * one token needs it; the largest budget stays far below where numbers become inexact.
 */
export type BudgetUnit = "cost" | "tokens";

const PER_DOLLAR = 1_000_000_000;

/** In dollars. Sums up to several times as much are exact in billionths. */
export const MAX_COST = 1_000_000;
export const MAX_BUDGET_TOKENS = 1_000_000_000_000;

export function toCounted(unit: BudgetUnit, amount: number): number {
  return unit === "tokens" ? Math.round(amount) : Math.round(amount * PER_DOLLAR);
}

export function fromCounted(unit: BudgetUnit, counted: number): number {
  return unit === "tokens" ? counted : counted / PER_DOLLAR;
}

/** As headers and people read it: dollars with up to six digits behind the point, rounded down. */
export function shownAmount(unit: BudgetUnit, counted: number): string {
  if (unit === "tokens") return String(counted);
  return (Math.floor(counted / 1000) / 1_000_000).toFixed(6).replace(/\.?0+$/, "");
}

export function shownUnit(unit: BudgetUnit): "usd" | "tokens" {
  return unit === "tokens" ? "tokens" : "usd";
}
