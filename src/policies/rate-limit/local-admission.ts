/**
 * Admission by local limits: all entries are asked, and only when all limits of all scopes agreed is anything taken,
 * in the same turn of the loop. If something refuses the request later, what was taken is given back.
 */
import type { Exchange, LimitReading } from "../../core/exchange.ts";
import type { Charge } from "../../core/policy.ts";
import { type LocalLimit, readingOf } from "./local-limit.ts";
import { addReading, refusal } from "./readings.ts";
import { NO_SLOT } from "./slot-lists.ts";

type Keys = readonly (string | undefined)[];

/** What one request took from one bucket, to be settled when the real amount is known. */
interface Debit {
  readonly limit: LocalLimit;
  readonly key: string | undefined;
  readonly generation: number;
  readonly taken: number;
}

export function keysOf(limits: readonly LocalLimit[], exchange: Exchange): Keys {
  return limits.map((limit) => limit.keyOf(exchange));
}

/** What a request takes: from every bucket, and besides from those that reserve its output. */
export interface Amount {
  readonly charged: number;
  readonly reserved: number;
}

export const ONE: Amount = { charged: 1, reserved: 0 };

/** Why a limit refuses, and how it stands. */
interface Refused {
  readonly limit: LocalLimit;
  readonly reading: LimitReading;
  readonly detail: string;
}

/**
 * False if an entry in shadow mode has nothing left, or not enough for what it must hold whole; throws the refusal of the
 * first that is enforced. The entries given are all of one mode.
 */
export function ask(
  limits: readonly LocalLimit[],
  keys: Keys,
  amount: Amount,
  exchange: Exchange,
  nowMs: number,
): boolean {
  for (let i = 0; i < limits.length; i++) {
    const limit = limits[i] as LocalLimit;
    const { store } = limit;
    store.lock();
    const slot = store.find(keys[i], nowMs);
    const left = slot === NO_SLOT ? store.rule.capacity : store.remaining(slot);
    if (left < neededBy(limit, amount)) {
      tell(exchange, refused(limit, slot, keys[i], amount, left, nowMs));
      return false;
    }
    store.unlock();
  }
  return true;
}

/** What must be left for the request to be admitted. */
function neededBy(limit: LocalLimit, amount: Amount): number {
  return limit.reservesOutput ? takenBy(limit, amount) : 1;
}

function takenBy(limit: LocalLimit, amount: Amount): number {
  return limit.reservesOutput ? amount.charged + amount.reserved : amount.charged;
}

function reasonOf(limit: LocalLimit, key: string | undefined, amount: Amount, left: number): string {
  if (!limit.reservesOutput || left < 1) return `the limit of ${limit.text} is used up for ${limit.show(key)}`;
  const needed = takenBy(limit, amount);
  const asked = `the call may use ${needed} tokens (${amount.charged} estimated, ${amount.reserved} of output reserved)`;
  return needed > limit.store.rule.capacity
    ? `${asked}, which never fits into the limit of ${limit.text}`
    : `${asked}, and the limit of ${limit.text} has ${left} left for ${limit.show(key)}`;
}

/** What one request takes from the buckets of some entries. */
export class LocalCharge implements Charge {
  declare confirm?: () => Promise<void>;
  readonly #limits: readonly LocalLimit[];
  readonly #keys: Keys;
  readonly #amount: Amount;
  readonly #exchange: Exchange;
  readonly #nowMs: () => number;
  #debits: readonly Debit[] = [];
  #reading: LimitReading | undefined = undefined;

  constructor(limits: readonly LocalLimit[], keys: Keys, amount: Amount, exchange: Exchange, nowMs: () => number) {
    this.#limits = limits;
    this.#keys = keys;
    this.#amount = amount;
    this.#exchange = exchange;
    this.#nowMs = nowMs;
  }

  /** Whether it was made for this list of limits. */
  isOf(limits: readonly LocalLimit[]): boolean {
    return this.#limits === limits;
  }

  /**
   * Takes the amount from every bucket, or what is left of it, and notes the tightest for the response's headers. Throws the
   * refusal of a limit of which another thread took the last since it was asked; then nothing is taken. In shadow mode
   * nothing is thrown or noted for the client.
   */
  take(): undefined {
    const isShadow = this.#limits[0]?.isShadow === true;
    // Another scope refuses it in shadow mode: a refused request costs nothing.
    if (isShadow && this.#exchange.isFreeInShadow) return;
    const nowMs = this.#nowMs();
    const debits: Debit[] = [];
    let tightest: LimitReading | undefined;
    for (let i = 0; i < this.#limits.length; i++) {
      const limit = this.#limits[i] as LocalLimit;
      const key = this.#keys[i];
      const { store } = limit;
      store.lock();
      const slot = store.open(key, nowMs);
      const left = store.remaining(slot);
      if (left < neededBy(limit, this.#amount)) {
        const why = refused(limit, slot, key, this.#amount, left, nowMs);
        for (const debit of debits) settle(debit, 0, nowMs);
        tell(this.#exchange, why);
        return;
      }
      const taken = store.take(slot, takenBy(limit, this.#amount));
      debits.push({ limit, key, generation: store.generation(slot), taken });
      const reading = readingOf(limit, slot, nowMs);
      store.unlock();
      if (tightest === undefined || reading.share < tightest.share) tightest = reading;
    }
    this.#debits = debits;
    if (isShadow) {
      this.#exchange.shadowCharges ??= [];
      this.#exchange.shadowCharges.push(this);
      return;
    }
    this.#reading = tightest;
    if (tightest !== undefined) addReading(this.#exchange, tightest);
  }

  giveBack(): undefined {
    this.settle(0);
    this.#debits = [];
    if (this.#reading === undefined) return;
    const { limits } = this.#exchange;
    // The headers must not speak of a charge that there is not; a refusal's own reading stays.
    const others = limits?.filter((reading) => reading !== this.#reading);
    this.#exchange.limits = others?.length === 0 ? undefined : others;
  }

  /** The estimate, if it is another by now: of an upload it is known when it went through. */
  recount(estimate: number): number | undefined {
    return estimate === this.#amount.charged ? undefined : estimate;
  }

  /** Replaces what was taken by the real amount. */
  settle(amount: number): void {
    const nowMs = this.#nowMs();
    for (const debit of this.#debits) settle(debit, amount, nowMs);
  }
}

/** Replaces what was taken by the real amount, in the bucket as it is now. */
function settle(debit: Debit, amount: number, nowMs: number): void {
  const { store } = debit.limit;
  store.lock();
  const slot = store.open(debit.key, nowMs);
  // A bucket that was evicted meanwhile has forgotten the debit: its successor is charged with all of it.
  const isSame = store.generation(slot) === debit.generation;
  store.take(slot, isSame ? amount - debit.taken : amount);
  store.unlock();
}

/** Counts the refusal and unlocks the store. */
function refused(
  limit: LocalLimit,
  slot: number,
  key: string | undefined,
  amount: Amount,
  left: number,
  nowMs: number,
): Refused {
  limit.refused();
  const reading = readingOf(limit, slot, nowMs);
  limit.store.unlock();
  return { limit, reading, detail: reasonOf(limit, key, amount, left) };
}

/** Throws the refusal, or notes what it would be. */
function tell(exchange: Exchange, { limit, reading, detail }: Refused): void {
  if (!limit.isShadow) throw refusal(exchange, reading, { detail });
  exchange.deniedInShadow("rateLimit", detail, { rule: limit.rule });
}
