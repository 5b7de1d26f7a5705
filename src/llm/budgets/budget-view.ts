/**
 * Reports the spending of a budget in the current period for the admin interface. The report lists the keys with the
 * highest spending, optionally only those that contain a search text.
 */

import type { Clock } from "../../base/clock.ts";
import type { BudgetView } from "../../core/policy.ts";
import { ONLY_ENDED } from "../../store/holds.ts";
import { parseCounter, type Store } from "../../store/store.ts";
import {
  type AccountSpace,
  accountsPrefix,
  type Budget,
  displayUnit,
  fromStoredAmount,
  parseOwner,
  periodAt,
  secondsLeft,
} from "./budget.ts";

const MAX_SHOWN = 20;
const MAX_FOUND = 100;
/** The scan is slow if a Redis is shared with other programs. */
const MAX_LOOK_MS = 5_000;

export async function budgetView(
  budget: Budget,
  owner: string,
  { store, former }: AccountSpace,
  clock: Clock,
  wanted: string | undefined,
): Promise<BudgetView> {
  const nowMs = clock.now();
  const period = periodAt(budget.per, nowMs);
  const prefix = accountsPrefix(budget, period);
  const untilMs = clock.monotonicMs() + MAX_LOOK_MS;
  const spent = new Map<string, number>();
  const accountOf = new Map<string, { readonly accounts: Store; readonly key: string }>();
  for (const accounts of former === undefined ? [store] : [store, former]) {
    let cursor: string | undefined;
    do {
      const page = await accounts.list(prefix, cursor);
      for (const { key, value } of page.entries) {
        const name = parseOwner(key.slice(prefix.length));
        const counted = parseCounter(value);
        // A former account that counts includes the spending of the own one.
        if (counted <= (spent.get(name) ?? 0)) continue;
        spent.set(name, counted);
        accountOf.set(name, { accounts, key });
      }
      cursor = page.cursor;
    } while (cursor !== undefined && clock.monotonicMs() < untilMs);
  }
  const found = [...spent].filter(([key]) => wanted === undefined || key.includes(wanted));
  found.sort(([, one], [, other]) => other - one);
  const shown = found.slice(0, wanted === undefined ? MAX_SHOWN : MAX_FOUND);
  await Promise.all(
    shown.map(async (entry) => {
      const { accounts, key } = accountOf.get(entry[0]) as { accounts: Store; key: string };
      entry[1] = (await accounts.add(key, 0, { hold: ONLY_ENDED })).total;
    }),
  );
  const { unit, limit } = budget;
  return {
    name: budget.name,
    owner,
    unit: displayUnit(unit),
    limit: fromStoredAmount(unit, limit),
    per: budget.per,
    hard: budget.isHard,
    period: period.name,
    resetSeconds: secondsLeft(period, nowMs),
    keysInUse: spent.size,
    keys: shown.map(([key, counted]) => ({
      key,
      spent: fromStoredAmount(unit, counted),
      remaining: fromStoredAmount(unit, Math.max(0, limit - counted)),
    })),
  };
}
