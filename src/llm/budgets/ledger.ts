/**
 * Records the spending of all owners in the store. An addition that certainly failed is queued, up to a limit, and retried. An addition
 * with an unknown outcome is not retried, because it might count twice.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import { type OwnedKey, Owner, ownedKey } from "../../base/owner.ts";
import type { CompileEnv } from "../../core/policy.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { boundedLabel, type Counter, type Family } from "../../observe/log/metrics.ts";
import { type AddOptions, type AddResult, type Store, StoreUnavailable } from "../../store/store.ts";
import { type Account, displayUnit, fromStoredAmount } from "./budget.ts";
import { BudgetAlerts } from "./budget-alerts.ts";
import { StreamProgress } from "./stream-progress.ts";

const RETRY_AFTER_MS = 1_000;
const MAX_WAITING = 100_000;
const MAX_LABELED_OWNERS = 1_000;

export type SpendingCounter = Pick<Account, "store" | "former" | "key" | "id" | "expiresAtMs">;

interface QueuedAmount {
  amount: number;
  readonly counter: SpendingCounter;
}

/** Bounds the set of joined accounts. Clearing the set is safe because the store has a marker for each. */
const MAX_REMEMBERED = 10_000;

export class Ledger {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #waiting = new Map<OwnedKey, QueuedAmount>();
  readonly #joined = new Set<OwnedKey>();
  /** These reservations were also added to the former account. */
  readonly #inBoth = new WeakSet<SpendingCounter>();
  #retrying: Timer | undefined = undefined;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Adds the amount only if the total stays within `ceiling`. Rejects if the store is unavailable. */
  reserve(counter: SpendingCounter, amount: number, ceiling: number): Promise<AddResult> {
    const { store, former, key, expiresAtMs } = counter;
    const options = { limit: ceiling, expiresAtMs };
    return former === undefined
      ? store.add(key, amount, options)
      : this.#reserveInBoth(counter, former, amount, options);
  }

  async #reserveInBoth(
    counter: SpendingCounter,
    former: Store,
    amount: number,
    options: AddOptions,
  ): Promise<AddResult> {
    const { store, key } = counter;
    if (!(await this.#counts(counter, former))) return store.add(key, amount, options);
    const result = await former.add(key, amount, options);
    if (!result.isAdded) return result;
    this.#inBoth.add(counter);
    await this.#add(counter, amount);
    return result;
  }

  /** `amount` may be negative or 0. Resolves with the total, or with undefined if the addition failed. Never rejects. */
  async add(counter: SpendingCounter, amount: number): Promise<number | undefined> {
    const total = await this.#add(counter, amount);
    const former = this.#inBoth.has(counter) ? formerCounter(counter) : undefined;
    return former === undefined ? total : this.#add(former, amount);
  }

  async #add(counter: SpendingCounter, amount: number): Promise<number | undefined> {
    const { store, key, expiresAtMs } = counter;
    try {
      return (await store.add(key, amount, { expiresAtMs })).total;
    } catch (error) {
      this.#failed(counter, amount, error);
      return undefined;
    }
  }

  /**
   * Returns whether the former account exists, because then an earlier version spent in this period or still does. Its
   * total includes the spending of all versions and of all namespaces with an equal budget, so none is missing: what
   * was spent before it existed is added to it once.
   */
  async #counts({ store, key, id, expiresAtMs }: SpendingCounter, former: Store): Promise<boolean> {
    if ((await former.get(key)) === undefined) return false;
    if (this.#joined.has(id)) return true;
    if (await store.replace(`former/${key}`, undefined, "1", { expiresAtMs })) {
      const { total } = await store.add(key, 0);
      if (total > 0) await former.add(key, total, { expiresAtMs });
    }
    if (this.#joined.size >= MAX_REMEMBERED) this.#joined.clear();
    this.#joined.add(id);
    return true;
  }

  async close(): Promise<void> {
    this.#retrying?.cancel();
    this.#retrying = undefined;
    await this.#writeWaiting();
    if (this.#waiting.size > 0)
      this.#logger.error("spending was not written to the store", { counters: this.#waiting.size });
  }

  #failed(counter: SpendingCounter, amount: number, error: unknown): void {
    const { id } = counter;
    const isUncertain = !(error instanceof StoreUnavailable) || error.isUncertain;
    if (isUncertain) {
      this.#logger.error("spending may be missing from its budget", { counter: id, reason: String(error) });
      return;
    }
    const known = this.#waiting.get(id);
    if (known !== undefined) known.amount += amount;
    else if (this.#waiting.size < MAX_WAITING) this.#waiting.set(id, { amount, counter });
    else this.#logger.error("spending is lost: too many counters wait for the store", { counter: id });
    this.#retrying ??= this.#clock.every(RETRY_AFTER_MS, () => void this.#writeWaiting());
  }

  async #writeWaiting(): Promise<void> {
    for (const [id, { amount, counter }] of [...this.#waiting]) {
      this.#waiting.delete(id);
      await this.#add(counter, amount);
      // The store is still unavailable, so the remaining writes would probably fail too.
      if (this.#waiting.has(id)) return;
    }
    if (this.#waiting.size > 0) return;
    this.#retrying?.cancel();
    this.#retrying = undefined;
  }
}

/** The standalone configuration owns the former account. */
function formerCounter(counter: SpendingCounter): SpendingCounter | undefined {
  const { former, key } = counter;
  return former && { ...counter, store: former, former: undefined, id: ownedKey(Owner.standalone, key) };
}

/** All owners share the books, whose accounts name their owner. */
export interface BudgetBooks {
  readonly ledger: Ledger;
  readonly progress: StreamProgress;
  readonly alerts: BudgetAlerts;
  refused(account: Account): void;
  spent(account: Account, amount: number): void;
}

export function budgetBooks(env: CompileEnv): BudgetBooks {
  return env.acquireShared(
    "budget books",
    () => open(env),
    async ({ ledger, progress }) => {
      progress.close();
      await ledger.close();
    },
  );
}

function open({ clock, logger: parent, metrics }: CompileEnv): BudgetBooks {
  const logger = parent.for("budgets");
  const ledger = new Ledger(clock, logger);
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
    ledger,
    progress: new StreamProgress(clock),
    alerts: new BudgetAlerts({ clock, logger, metrics }),
    refused: ({ budget }) => refusals.labels(budget.name).add(),
    spent({ budget, owner }, amount) {
      if (amount > 0)
        spending
          .labels(budget.name, labelOfOwner(owner), displayUnit(budget.unit))
          .add(fromStoredAmount(budget.unit, amount));
    },
  };
}
