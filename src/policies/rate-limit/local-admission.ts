/**
 * Admission by local limits: all entries are asked, and only when all limits of all scopes agreed is anything taken.
 * Another hook may have waited in between, so taking asks once more: concurrent requests never get more than there is.
 */
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange, LimitReading } from "../../core/exchange.ts";
import { type LocalLimit, readingOf } from "./local-limit.ts";
import { addReading, refusal } from "./readings.ts";
import { NO_SLOT } from "./slot-lists.ts";

type Keys = readonly (string | undefined)[];

/** What one request took from one bucket, to be settled when the real amount is known. */
export interface Debit {
  readonly limit: LocalLimit;
  readonly key: string | undefined;
  readonly generation: number;
  readonly taken: number;
}

export function keysOf(limits: readonly LocalLimit[], exchange: Exchange): Keys {
  return limits.map((limit) => limit.keyOf(exchange));
}

/** Throws the refusal of the first entry that has nothing left. */
export function ask(limits: readonly LocalLimit[], keys: Keys, exchange: Exchange, nowMs: number): void {
  for (let i = 0; i < limits.length; i++) {
    const limit = limits[i] as LocalLimit;
    const slot = limit.store.find(keys[i], nowMs);
    if (slot !== NO_SLOT && limit.store.remaining(slot) < 1) throw refuse(limit, keys[i], slot, exchange, nowMs);
  }
}

/** Takes the amount from every bucket, or what is left of it, and notes the tightest for the response's headers. */
export function take(
  limits: readonly LocalLimit[],
  keys: Keys,
  amount: number,
  exchange: Exchange,
  nowMs: number,
): Debit[] {
  ask(limits, keys, exchange, nowMs);
  const debits: Debit[] = [];
  let tightest: LimitReading | undefined;
  for (let i = 0; i < limits.length; i++) {
    const limit = limits[i] as LocalLimit;
    const slot = limit.store.open(keys[i], nowMs);
    const taken = limit.store.take(slot, amount);
    debits.push({ limit, key: keys[i], generation: limit.store.generation(slot), taken });
    const reading = readingOf(limit, slot, nowMs);
    if (tightest === undefined || reading.share < tightest.share) tightest = reading;
  }
  if (tightest !== undefined) addReading(exchange, tightest);
  return debits;
}

/** Replaces what was taken by the real amount, in the bucket as it is now. */
export function settle(debit: Debit, amount: number, nowMs: number): void {
  const { store } = debit.limit;
  const slot = store.open(debit.key, nowMs);
  // A bucket that was evicted meanwhile has forgotten the debit: its successor is charged with all of it.
  const isSame = store.generation(slot) === debit.generation;
  store.take(slot, isSame ? amount - debit.taken : amount);
}

function refuse(
  limit: LocalLimit,
  key: string | undefined,
  slot: number,
  exchange: Exchange,
  nowMs: number,
): GatewayError {
  limit.refused();
  return refusal(exchange, readingOf(limit, slot, nowMs), {
    detail: `the limit of ${limit.text} is used up for ${limit.show(key)}`,
  });
}
