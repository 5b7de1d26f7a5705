/**
 * Everything about budgets that outlives a reload: the ledger with what waits for the store, streams in flight, alerts that
 * were told. One per process, claimed by every policy that has budgets.
 */
import type { CompileEnv } from "../../core/policy.ts";
import type { Counter, Family } from "../../observe/log/metrics.ts";
import { type Store, storeNamespace } from "../../store/store.ts";
import type { Account } from "./budget.ts";
import { BudgetAlerts } from "./budget-alerts.ts";
import { Ledger } from "./ledger.ts";
import { fromCounted, shownUnit } from "./money.ts";
import { StreamProgress } from "./stream-progress.ts";

export interface BudgetBooks {
  readonly store: Store;
  readonly ledger: Ledger;
  readonly progress: StreamProgress;
  readonly alerts: BudgetAlerts;
  refused(account: Account): void;
  spent(account: Account, amount: number): void;
}

export function budgetBooks(env: CompileEnv): BudgetBooks {
  return env.acquire(
    "budget books",
    {},
    () => open(env),
    async ({ ledger, progress }) => {
      progress.close();
      await ledger.close();
    },
  );
}

function open({ clock, logger: parent, metrics, fetch, store: whole }: CompileEnv): BudgetBooks & {
  readonly ledger: Ledger;
} {
  const store = storeNamespace(whole, "budgets");
  const logger = parent.for("budgets");
  const ledger = new Ledger(store, clock, logger);
  const refusals: Family<Counter> = metrics.counter(
    "gateway_budget_refused_total",
    "Calls that were rejected because a budget was used up.",
    ["budget"],
  );
  const spending: Family<Counter> = metrics.counter(
    "gateway_budget_spent_total",
    "Spending of budgets in US dollars or tokens, by key.",
    ["budget", "key", "unit"],
  );
  metrics.gauge(
    "gateway_budget_waiting",
    "Counters of budgets whose changes wait for the store.",
    () => ledger.waiting,
  );
  return {
    store,
    ledger,
    progress: new StreamProgress(clock),
    alerts: new BudgetAlerts({ store, clock, fetch, logger, metrics }),
    refused: ({ budget }) => refusals.labels(budget.name).add(),
    spent({ budget, owner }, amount) {
      if (amount > 0) spending.labels(budget.name, owner, shownUnit(budget.unit)).add(fromCounted(budget.unit, amount));
    },
  };
}
