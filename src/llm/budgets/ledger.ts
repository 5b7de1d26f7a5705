/**
 * Records spending in the store. An addition that certainly failed is queued, up to a limit, and retried. An addition
 * with an unknown outcome is not retried, because it might count twice.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import type { CompileEnv } from "../../core/policy.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { boundedLabel, type Counter, type Family } from "../../observe/log/metrics.ts";
import { type AddResult, type Store, StoreUnavailable, storeNamespace } from "../../store/store.ts";
import { type Account, displayUnit, fromStoredAmount } from "./budget.ts";
import { BudgetAlerts } from "./budget-alerts.ts";
import { StreamProgress } from "./stream-progress.ts";

const RETRY_AFTER_MS = 1_000;
const MAX_WAITING = 100_000;
const MAX_LABELED_OWNERS = 1_000;

export interface SpendingCounter {
  readonly key: string;
  readonly expiresAtMs: number;
}

interface QueuedAmount {
  amount: number;
  readonly expiresAtMs: number;
}

export class Ledger {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #waiting = new Map<string, QueuedAmount>();
  #retrying: Timer | undefined = undefined;

  constructor(store: Store, clock: Clock, logger: Logger) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Adds the amount only if the total stays within `ceiling`. Rejects if the store is unavailable. */
  reserve(counter: SpendingCounter, amount: number, ceiling: number): Promise<AddResult> {
    return this.#store.add(counter.key, amount, { limit: ceiling, expiresAtMs: counter.expiresAtMs });
  }

  /** `amount` may be negative or 0. Resolves with the total, or with undefined if the addition failed. Never rejects. */
  async add(counter: SpendingCounter, amount: number): Promise<number | undefined> {
    try {
      return (await this.#store.add(counter.key, amount, { expiresAtMs: counter.expiresAtMs })).total;
    } catch (error) {
      this.#failed(counter, amount, error);
      return undefined;
    }
  }

  async close(): Promise<void> {
    this.#retrying?.cancel();
    this.#retrying = undefined;
    await this.#writeWaiting();
    if (this.#waiting.size > 0)
      this.#logger.error("spending was not written to the store", { counters: this.#waiting.size });
  }

  #failed({ key, expiresAtMs }: SpendingCounter, amount: number, error: unknown): void {
    const isUncertain = !(error instanceof StoreUnavailable) || error.isUncertain;
    if (isUncertain) {
      this.#logger.error("spending may be missing from its budget", { counter: key, reason: String(error) });
      return;
    }
    const known = this.#waiting.get(key);
    if (known !== undefined) known.amount += amount;
    else if (this.#waiting.size < MAX_WAITING) this.#waiting.set(key, { amount, expiresAtMs });
    else this.#logger.error("spending is lost: too many counters wait for the store", { counter: key });
    this.#retrying ??= this.#clock.every(RETRY_AFTER_MS, () => void this.#writeWaiting());
  }

  async #writeWaiting(): Promise<void> {
    for (const [key, { amount, expiresAtMs }] of [...this.#waiting]) {
      this.#waiting.delete(key);
      await this.add({ key, expiresAtMs }, amount);
      // The store is still unavailable, so the remaining writes would probably fail too.
      if (this.#waiting.has(key)) return;
    }
    if (this.#waiting.size > 0) return;
    this.#retrying?.cancel();
    this.#retrying = undefined;
  }
}

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
    "Calls that were rejected because a budget was exhausted.",
    ["budget"],
  );
  const labelOfOwner = boundedLabel(MAX_LABELED_OWNERS);
  const spending: Family<Counter> = metrics.counter(
    "gateway_budget_spent_total",
    "Spending of budgets in US dollars or tokens, by key. Keys beyond 1000 share `other`.",
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
      if (amount > 0)
        spending
          .labels(budget.name, labelOfOwner(owner), displayUnit(budget.unit))
          .add(fromStoredAmount(budget.unit, amount));
    },
  };
}
