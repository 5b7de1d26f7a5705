/**
 * Records the spending of all owners in the store. A reservation is held in the name of this ledger, which renews it
 * while the call is running, so that it ends with its process. An operation that failed is queued, up to a limit, and
 * repeated. One that may have been applied is repeated with the same number, so that it counts once.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import { createIdSource } from "../../base/ids.ts";
import { type OwnedKey, Owner, ownedKey } from "../../base/owner.ts";
import type { CompileEnv } from "../../core/policy.ts";
import type { Logger } from "../../record/log/logger.ts";
import { boundedLabel, type Counter, type Family } from "../../record/log/metrics.ts";
import { NUMBERS_KEPT_MS } from "../../store/holds.ts";
import { type AddResult, type Store, StoreUnavailable } from "../../store/store.ts";
import { type Account, displayUnit, fromStoredAmount } from "./budget.ts";
import { BudgetAlerts } from "./budget-alerts.ts";
import { StreamProgress } from "./stream-progress.ts";

const RETRY_AFTER_MS = 1_000;
const MAX_WAITING = 100_000;
const MAX_LABELED_OWNERS = 1_000;
/** A reservation of a process that ended counts for at most 30 s, with a margin for the last renewal on its way. */
const HELD_FOR_MS = 25_000;
const RENEW_EVERY_MS = 10_000;
const FORGET_AFTER_MS = 60_000;
/** The store forgets numbers later. */
const REPEAT_FOR_MS = NUMBERS_KEPT_MS / 2;

type SpendingCounter = Pick<Account, "store" | "former" | "key" | "id" | "expiresAtMs">;

interface Change {
  readonly spent: number;
  readonly taken: number;
  readonly released: number;
}

interface Waiting {
  readonly change: Change;
  /** Set if the change may have been applied. */
  readonly sequence: number | undefined;
  readonly sinceMs: number;
}

/** What this ledger knows about an account that it used in the last minute. */
interface Used {
  readonly counter: SpendingCounter;
  /** The name under which the store holds reservations. */
  readonly holder: string;
  /** The number of the last operation. */
  sequence: number;
  held: number;
  pending: number;
  /** True if the store may hold another amount, because a reply was lost. */
  mayDiffer: boolean;
  usedMs: number;
  readonly waiting: Waiting[];
}

/** Bounds the set of joined accounts. Clearing the set is safe because the store has a marker for each. */
const MAX_REMEMBERED = 10_000;

export class Ledger {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #name = createIdSource().hex(8);
  readonly #used = new Map<OwnedKey, Used>();
  #holders = 0;
  #waiting = 0;
  readonly #joined = new Set<OwnedKey>();
  /** These reservations were also added to the former account. */
  readonly #inBoth = new WeakSet<SpendingCounter>();
  #retrying: Timer | undefined = undefined;
  #isWriting = false;
  #renewing: Timer | undefined = undefined;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /** The number of operations that wait for the store. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Holds the amount only if the total stays within `ceiling`. Rejects if the store is unavailable. */
  async reserve(counter: SpendingCounter, amount: number, ceiling: number): Promise<AddResult> {
    const { former } = counter;
    const change: Change = { spent: 0, taken: amount, released: 0 };
    if (former === undefined || !(await this.#counts(counter, former))) return this.#apply(counter, change, ceiling);
    const result = await this.#apply(formerCounter(counter, former), change, ceiling);
    if (!result.isAdded) return result;
    this.#inBoth.add(counter);
    await this.#applyOrQueue(counter, change);
    return result;
  }

  /** Holds more for a running call. Resolves with the total, or with undefined if the store is unavailable. Never rejects. */
  take(counter: SpendingCounter, amount: number): Promise<number | undefined> {
    return this.#changeAll(counter, { spent: 0, taken: amount, released: 0 });
  }

  /** Replaces what a call holds with what it spent. Resolves like `take`. */
  settle(counter: SpendingCounter, released: number, spent: number): Promise<number | undefined> {
    return this.#changeAll(counter, { spent, taken: 0, released });
  }

  async #changeAll(counter: SpendingCounter, change: Change): Promise<number | undefined> {
    const total = await this.#applyOrQueue(counter, change);
    const { former } = counter;
    return former === undefined || !this.#inBoth.has(counter)
      ? total
      : this.#applyOrQueue(formerCounter(counter, former), change);
  }

  async #applyOrQueue(counter: SpendingCounter, change: Change): Promise<number | undefined> {
    const used = this.#open(counter);
    // What was taken may still wait for the store, so this can be negative for a while.
    used.held -= change.released;
    // Operations run in the order of the calls, so that none is released before it is taken.
    if (used.waiting.length > 0) {
      this.#enqueue(used, { change, sequence: undefined, sinceMs: this.#clock.monotonicMs() });
      return undefined;
    }
    try {
      return (await this.#apply(counter, change)).total;
    } catch (error) {
      this.#failed(used, change, error);
      return undefined;
    }
  }

  async #apply(counter: SpendingCounter, change: Change, limit?: number, again?: number): Promise<AddResult> {
    const used = this.#open(counter);
    const { spent, taken, released } = change;
    const sequence = again ?? ++used.sequence;
    used.pending += 1;
    used.usedMs = this.#clock.monotonicMs();
    try {
      const result = await counter.store.add(counter.key, spent, {
        expiresAtMs: counter.expiresAtMs,
        limit,
        hold: { owner: used.holder, sequence, taken, released, forMs: HELD_FOR_MS },
      });
      if (result.isAdded) used.held += taken;
      return result;
    } catch (error) {
      if (isUncertain(error)) {
        used.mayDiffer = true;
        throw new LostReply(sequence, error);
      }
      // A number that was not used leaves no gap.
      if (again === undefined && sequence === used.sequence) used.sequence -= 1;
      throw error;
    } finally {
      used.pending -= 1;
    }
  }

  #open(counter: SpendingCounter): Used {
    const known = this.#used.get(counter.id);
    if (known !== undefined) return known;
    const used: Used = {
      counter,
      // Numbers begin again, so the name is new.
      holder: `${this.#name}.${++this.#holders}`,
      sequence: 0,
      held: 0,
      pending: 0,
      mayDiffer: false,
      usedMs: this.#clock.monotonicMs(),
      waiting: [],
    };
    this.#used.set(counter.id, used);
    this.#renewing ??= this.#clock.every(RENEW_EVERY_MS, () => this.#renew());
    return used;
  }

  /** Keeps the reservations of running calls, and forgets accounts that are not used. */
  #renew(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const [id, used] of this.#used) {
      const { held, pending, waiting } = used;
      const isQuiet = pending === 0 && waiting.length === 0;
      if (held > 0 || used.mayDiffer) void this.#renewOne(used, isQuiet);
      else if (isQuiet && nowMs - used.usedMs > FORGET_AFTER_MS) this.#used.delete(id);
    }
    if (this.#used.size > 0) return;
    this.#renewing?.cancel();
    this.#renewing = undefined;
  }

  async #renewOne(used: Used, isExact: boolean): Promise<void> {
    const { counter, holder, held } = used;
    if (isExact) used.mayDiffer = false;
    try {
      await counter.store.add(counter.key, 0, {
        expiresAtMs: counter.expiresAtMs,
        hold: { owner: holder, sequence: 0, renewed: { amount: Math.max(0, held), isExact }, forMs: HELD_FOR_MS },
      });
    } catch {
      // The next renewal takes again what ended meanwhile.
      used.mayDiffer = true;
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
    for (const timer of [this.#retrying, this.#renewing]) timer?.cancel();
    this.#retrying = undefined;
    this.#renewing = undefined;
    await this.#writeWaiting();
    if (this.#waiting > 0) this.#logger.error("spending was not written to the store", { operations: this.#waiting });
  }

  #failed(used: Used, change: Change, error: unknown): void {
    const sequence = error instanceof LostReply ? error.sequence : undefined;
    if (!(error instanceof LostReply || error instanceof StoreUnavailable)) {
      this.#logger.error("spending may be missing from its budget", {
        counter: used.counter.id,
        reason: String(error),
      });
      return;
    }
    this.#enqueue(used, { change, sequence, sinceMs: this.#clock.monotonicMs() });
  }

  #enqueue(used: Used, next: Waiting): void {
    const last = used.waiting.at(-1);
    if (last !== undefined && last.sequence === undefined && next.sequence === undefined)
      used.waiting[used.waiting.length - 1] = { ...last, change: this.#merged(used, last.change, next.change) };
    else if (this.#waiting < MAX_WAITING) {
      used.waiting.push(next);
      this.#waiting += 1;
    } else this.#logger.error("spending is lost: too many operations wait for the store", { counter: used.counter.id });
    this.#retrying ??= this.#clock.every(RETRY_AFTER_MS, () => void this.#writeWaiting());
  }

  /** What the second change releases of what the first one takes is never held. */
  #merged(used: Used, first: Change, second: Change): Change {
    const released = Math.min(first.taken, second.released);
    used.held += released;
    return {
      spent: first.spent + second.spent,
      taken: first.taken - released + second.taken,
      released: first.released + second.released - released,
    };
  }

  async #writeWaiting(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    try {
      // If the store is still unavailable, the remaining writes would probably fail too.
      for (const used of [...this.#used.values()])
        while (used.waiting.length > 0) if (!(await this.#writeFirst(used))) return;
    } finally {
      this.#isWriting = false;
    }
    if (this.#waiting > 0) return;
    this.#retrying?.cancel();
    this.#retrying = undefined;
  }

  async #writeFirst(used: Used): Promise<boolean> {
    const first = used.waiting.shift() as Waiting;
    this.#waiting -= 1;
    if (first.sequence !== undefined && this.#clock.monotonicMs() - first.sinceMs > REPEAT_FOR_MS) {
      this.#logger.error("spending may be missing from its budget", { counter: used.counter.id });
      return true;
    }
    try {
      await this.#apply(used.counter, first.change, undefined, first.sequence);
      return true;
    } catch (error) {
      const sequence = error instanceof LostReply ? error.sequence : first.sequence;
      used.waiting.unshift({ ...first, sequence });
      this.#waiting += 1;
      return false;
    }
  }
}

/** The operation with this number may have been applied. */
class LostReply extends Error {
  readonly sequence: number;

  constructor(sequence: number, cause: unknown) {
    super((cause as Error).message, { cause });
    this.name = "LostReply";
    this.sequence = sequence;
  }
}

function isUncertain(error: unknown): boolean {
  return error instanceof StoreUnavailable && error.isUncertain;
}

/** The standalone configuration owns the former account. */
function formerCounter({ key, expiresAtMs }: SpendingCounter, former: Store): SpendingCounter {
  return { store: former, former: undefined, key, id: ownedKey(Owner.standalone, key), expiresAtMs };
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
  metrics.gauge("gateway_budget_waiting", "Changes of budgets that wait for the store.", () => ledger.waiting);
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
