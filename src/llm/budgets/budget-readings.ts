/**
 * What clients are told about budgets, in headers of their own: of the budget with the smallest share left, on a refusal
 * of the one that refused. A backend's headers of these names never pass.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Account } from "./budget.ts";
import { shownAmount, shownUnit } from "./money.ts";
import { secondsLeft } from "./period.ts";

export interface BudgetReading {
  readonly share: number;
  readonly headers: Readonly<Record<string, string>>;
}

const NAMES = ["x-budget-name", "x-budget-unit", "x-budget-limit", "x-budget-remaining", "x-budget-reset"] as const;

/** All budgets of a request, whatever scope they stand in. */
const readings = new WeakMap<Exchange, BudgetReading[]>();

export function readingOf({ budget, period }: Account, total: number, nowMs: number): BudgetReading {
  const remaining = Math.max(0, budget.limit - total);
  return {
    share: remaining / budget.limit,
    headers: {
      "x-budget-name": budget.name,
      "x-budget-unit": shownUnit(budget.unit),
      "x-budget-limit": shownAmount(budget.unit, budget.limit),
      "x-budget-remaining": shownAmount(budget.unit, remaining),
      "x-budget-reset": String(secondsLeft(period, nowMs)),
    },
  };
}

export function noteReading(exchange: Exchange, reading: BudgetReading): void {
  const known = readings.get(exchange);
  if (known === undefined) readings.set(exchange, [reading]);
  else known.push(reading);
}

export function budgetExceeded(exchange: Exchange, account: Account, reading: BudgetReading): GatewayError {
  readings.set(exchange, [reading]);
  const { budget, period, owner } = account;
  const limit = `${shownAmount(budget.unit, budget.limit)} ${shownUnit(budget.unit)} per ${budget.per}`;
  return new GatewayError("budget_exceeded", {
    message: `the budget "${budget.name}" of ${limit} is used up; it is restored at ${new Date(period.endMs).toISOString()}`,
    detail: `the budget ${budget.name} (${limit}) is used up for ${owner}`,
    headers: { ...reading.headers, "retry-after": reading.headers["x-budget-reset"] as string },
  });
}

export function writeBudgetHeaders(exchange: Exchange): void {
  const { response } = exchange;
  if (response === undefined) return;
  const { headers } = response;
  const known = readings.get(exchange);
  if (known === undefined) {
    if (response.source === "upstream") for (const name of NAMES) headers.delete(name);
    return;
  }
  const smallest = known.reduce((least, one) => (one.share < least.share ? one : least));
  for (const [name, value] of Object.entries(smallest.headers)) headers.set(name, value);
}
