/**
 * What was spent, in the store, where all replicas count. An addition that certainly did not arrive waits and is made
 * again every second; one that may have arrived is not repeated, because it would count twice. At most one ledger per
 * process, so that what waits is seen in one place.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { type AddResult, type Store, StoreUnavailable } from "../../store/store.ts";

const RETRY_AFTER_MS = 1_000;
/** Counters whose changes wait for the store. */
const MAX_WAITING = 100_000;

export interface Counter {
  /** In the store. */
  readonly key: string;
  readonly expiresAtMs: number;
}

interface Waiting {
  amount: number;
  readonly expiresAtMs: number;
}

export class Ledger {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #waiting = new Map<string, Waiting>();
  #retrying: Timer | undefined = undefined;

  constructor(store: Store, clock: Clock, logger: Logger) {
    this.#store = store;
    this.#clock = clock;
    this.#logger = logger;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Adds the amount if the total then is within the ceiling. Rejects with StoreUnavailable. */
  reserve(counter: Counter, amount: number, ceiling: number): Promise<AddResult> {
    return this.#store.add(counter.key, amount, { limit: ceiling, expiresAtMs: counter.expiresAtMs });
  }

  /** Adds what was spent, or gives back; 0 reads. Resolves with the total, if the store said it; never rejects. */
  async add(counter: Counter, amount: number): Promise<number | undefined> {
    try {
      return (await this.#store.add(counter.key, amount, { expiresAtMs: counter.expiresAtMs })).total;
    } catch (error) {
      this.#failed(counter, amount, error);
      return undefined;
    }
  }

  /** The last attempt to write down what waits. */
  async close(): Promise<void> {
    this.#retrying?.cancel();
    this.#retrying = undefined;
    await this.#writeWaiting();
    if (this.#waiting.size > 0)
      this.#logger.error("spending was not written to the store", { counters: this.#waiting.size });
  }

  #failed({ key, expiresAtMs }: Counter, amount: number, error: unknown): void {
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
      // The store is still away: the others would fail alike.
      if (this.#waiting.has(key)) return;
    }
    if (this.#waiting.size > 0) return;
    this.#retrying?.cancel();
    this.#retrying = undefined;
  }
}
