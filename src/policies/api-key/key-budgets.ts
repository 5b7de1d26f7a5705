/**
 * The budget of a key itself: like one of the `budgets` policy, but with the key's own limit, wherever the key is used.
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Charge, CompileEnv, Hooks } from "../../core/policy.ts";
import type { KeyBudget } from "../../identity/passwords/api-keys.ts";
import { accountOf, type Budget } from "../../llm/budgets/budget.ts";
import { budgetBooks } from "../../llm/budgets/budget-books.ts";
import { BudgetCharge } from "../../llm/budgets/budget-charge.ts";
import { writeBudgetHeaders } from "../../llm/budgets/budget-readings.ts";
import { claimsOf, settleCharge, watchStream } from "../../llm/budgets/call-claims.ts";
import { fromCounted, toCounted } from "../../llm/budgets/money.ts";
import { counterOf, type Store, storeNamespace } from "../../store/store.ts";

/** What the budgets of keys are called; each key has its account under its id. */
const NAME = "key";
const ALERT_AT = [80, 100];

export interface SpendingKey {
  readonly id: string;
  readonly budget?: KeyBudget | undefined;
}

/** `keyOf`: the key of a request, if it has one. */
export function keyBudgetHooks(
  env: CompileEnv,
  keyOf: (exchange: Exchange) => SpendingKey | undefined,
): Pick<Hooks, "llmRequest" | "settle" | "response"> {
  const books = budgetBooks(env);
  const charges = new WeakMap<Exchange, BudgetCharge>();
  const settings = { books, failureMode: "closed", webhook: undefined, nowMs: () => env.clock.now() } as const;
  return {
    llmRequest(exchange): Charge | undefined {
      const key = keyOf(exchange);
      if (key?.budget === undefined) return undefined;
      const wanted = [{ budget: budgetOf(key.budget), key: key.id }];
      const charge = new BudgetCharge(settings, claimsOf(wanted, exchange, "refuse", env.clock.now()), exchange);
      charges.set(exchange, charge);
      return charge;
    },
    settle(exchange, outcome) {
      const charge = charges.get(exchange);
      if (charge !== undefined) settleCharge(charge, exchange, outcome);
    },
    response(exchange) {
      const charge = charges.get(exchange);
      if (charge !== undefined) watchStream(books.progress, charge, exchange);
      writeBudgetHeaders(exchange);
    },
  };
}

/** What a key spent of its own budget in this period. */
export async function keySpending(whole: Store, clock: Clock, key: SpendingKey): Promise<number | undefined> {
  if (key.budget === undefined) return undefined;
  const budget = budgetOf(key.budget);
  const account = accountOf(budget, key.id, key.id, clock.now());
  return fromCounted(budget.unit, counterOf(await storeNamespace(whole, "budgets").get(account.key)));
}

function budgetOf({ cost, tokens, per }: KeyBudget): Budget {
  const unit = tokens === undefined ? "cost" : "tokens";
  return {
    name: NAME,
    unit,
    limit: toCounted(unit, tokens ?? cost ?? 0),
    per,
    isHard: true,
    reservesOutput: false,
    alertAt: ALERT_AT,
  };
}
