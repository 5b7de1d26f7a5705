/**
 * `/debug/usage/budgets` compares the counters of budgets in the store with the sums of the history database. They
 * can differ, for example by running calls and dropped rows.
 */

import type { Clock } from "../../base/clock.ts";
import { defined } from "../../json/json.ts";
import { displayUnit, fromStoredAmount, type ParsedAccount, parseAccount, periodAt } from "../../llm/budgets/budget.ts";
import type { History } from "../../record/history/history.ts";
import { ONLY_ENDED } from "../../store/holds.ts";
import { entriesOfAllOwners } from "../../store/owned-store.ts";
import { parseCounter, type Store } from "../../store/store.ts";
import { type AdminEndpoint, jsonResponse } from "../server/endpoint.ts";
import { ADMIN_PATHS } from "../server/paths.ts";
import { HISTORY_OFF } from "./usage.ts";

const MAX_ACCOUNTS = 1_000;

interface ComparedAccount {
  readonly namespace?: string;
  readonly budget: string;
  readonly unit: "usd" | "tokens";
  readonly per: string;
  readonly period: string;
  readonly key: string;
  readonly ledger: number;
  readonly history: number;
  readonly difference: number;
}

export function usageBudgetsEndpoint(history: History | undefined, store: Store, clock: Clock): AdminEndpoint {
  return {
    path: ADMIN_PATHS.usageBudgets,
    doc: "Compares the spending of budgets in the store with the history database.",
    async GET() {
      if (history === undefined) return HISTORY_OFF;
      try {
        const ledger = await readLedger(store);
        const recorded = new Map(
          (await history.ask({ kind: "spending" })).map(({ account, amount }) => [account, amount]),
        );
        // Reservations of processes that ended still count until the account is used.
        const budgets = entriesOfAllOwners(store, "budgets");
        for (const [key, amount] of ledger)
          if (amount !== recorded.get(key)) ledger.set(key, (await budgets.add(key, 0, { hold: ONLY_ENDED })).total);
        const accounts = compareAccounts(ledger, recorded, clock.now());
        const differing = accounts.filter(({ difference }) => difference !== 0).length;
        const { queuedRows, spoolBytes, dropped } = history.status();
        const shown = accounts.slice(0, MAX_ACCOUNTS);
        return jsonResponse({ compared: accounts.length, differing, queuedRows, spoolBytes, dropped, accounts: shown });
      } catch (error) {
        return jsonResponse({ error: (error as Error).message }, 503);
      }
    },
  };
}

async function readLedger(store: Store): Promise<Map<string, number>> {
  const budgets = entriesOfAllOwners(store, "budgets");
  const found = new Map<string, number>();
  let cursor: string | undefined;
  do {
    const page = await budgets.list("", cursor);
    for (const { key, value } of page.entries) if (parseAccount(key) !== undefined) found.set(key, parseCounter(value));
    cursor = page.cursor;
  } while (cursor !== undefined);
  return found;
}

/** Accounts with the largest difference come first. Counters of earlier periods expire, so those are not compared. */
function compareAccounts(
  ledger: ReadonlyMap<string, number>,
  recorded: ReadonlyMap<string, number>,
  nowMs: number,
): ComparedAccount[] {
  const keys = new Set([...ledger.keys(), ...recorded.keys()]);
  return [...keys]
    .flatMap((key): ComparedAccount[] => {
      const account = parseAccount(key);
      if (account === undefined || periodAt(account.per, nowMs).name !== account.period) return [];
      return [compared(account, ledger.get(key) ?? 0, recorded.get(key) ?? 0)];
    })
    .sort((one, other) => Math.abs(other.difference) - Math.abs(one.difference));
}

function compared(
  { namespace, budget, unit, per, period, owner: key }: ParsedAccount,
  ledger: number,
  history: number,
): ComparedAccount {
  const amount = (counted: number): number => fromStoredAmount(unit, counted);
  return {
    ...defined({ namespace }),
    budget,
    unit: displayUnit(unit),
    per,
    period,
    key,
    ledger: amount(ledger),
    history: amount(history),
    difference: amount(ledger - history),
  };
}
