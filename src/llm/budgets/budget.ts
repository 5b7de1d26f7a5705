/**
 * Defines budgets, their periods, and their amounts. Budgets of one owner with the same name, unit, and period share
 * their counters, even if they are configured in different scopes. Documents of a namespace have one owner. The admin
 * interface lists the keys with the highest spending in the current period, or those that contain a search text.
 */

import type { Clock } from "../../base/clock.ts";
import { type OwnedKey, type Owner, ownedKey } from "../../base/owner.ts";
import type { BudgetView } from "../../core/policy.ts";
import { ONLY_ENDED } from "../../store/holds.ts";
import type { OwnedStore } from "../../store/owned-store.ts";
import { parseCounter, type Store } from "../../store/store.ts";

export interface Budget {
  readonly name: string;
  readonly unit: BudgetUnit;
  /** The limit is in tokens or billionths of a dollar. */
  readonly limit: number;
  readonly per: PeriodUnit;
  /** A soft budget does not reject a call that exceeds it. */
  readonly isHard: boolean;
  readonly reservesOutput: boolean;
  readonly alertAt: readonly number[];
}

/** Holds the accounts of one owner. */
export interface AccountSpace {
  readonly store: Store;
  /** Holds accounts that earlier versions kept without an owner. Their spending counts until their period ends. */
  readonly former: Store | undefined;
  readonly tenant: Owner;
}

export interface Account extends AccountSpace {
  readonly budget: Budget;
  readonly period: Period;
  /** The key within `store`, and within `former`. */
  readonly key: string;
  /** The key with the owner, which names the account in the whole process. */
  readonly id: OwnedKey;
  readonly expiresAtMs: number;
  /** Names the user or team whose account it is. */
  readonly owner: string;
}

export function accountsOf(store: OwnedStore): AccountSpace {
  return { store: store.at("budgets"), former: store.former("budgets"), tenant: store.owner.tenant };
}

const NO_KEY = "(no key)";

/** Calls with an undefined `key` share one account. */
export function accountFor(
  space: AccountSpace,
  budget: Budget,
  key: string | undefined,
  shown: string,
  nowMs: number,
): Account {
  const period = periodAt(budget.per, nowMs);
  const name = `${accountsPrefix(budget, period)}${key === undefined ? SHARED : `${OWN}${key}`}`;
  const { store, former, tenant } = space;
  return {
    store,
    former,
    tenant,
    budget,
    period,
    key: name,
    id: ownedKey(tenant, name),
    expiresAtMs: keptUntilMs(period),
    owner: key === undefined ? NO_KEY : shown,
  };
}

function accountsPrefix({ name, unit, per }: Budget, period: Period): string {
  return `${name}/${unit}/${per}/${period.name}/`;
}

/** Returns the owner of an account. `rest` is the store key without the prefix from `accountsPrefix`. */
function parseOwner(rest: string): string {
  return rest === SHARED ? NO_KEY : rest.slice(OWN.length);
}

export interface ParsedAccount {
  /** Undefined for the standalone configuration. */
  readonly namespace: string | undefined;
  readonly budget: string;
  readonly unit: BudgetUnit;
  readonly per: PeriodUnit;
  readonly period: string;
  readonly owner: string;
}

const ACCOUNT = /^(?:@([^/]+)\/)?([^/]+)\/(cost|tokens)\/(day|week|month)\/(\d{4}-\d\d(?:-\d\d)?)\/(-$|=.*)$/s;

/** Parses the ID of an account. Returns undefined for other keys in the store. */
export function parseAccount(id: string): ParsedAccount | undefined {
  const [, namespace, budget, unit, per, period, rest] = ACCOUNT.exec(id) ?? [];
  if (budget === undefined || period === undefined || rest === undefined) return undefined;
  return { namespace, budget, unit: unit as BudgetUnit, per: per as PeriodUnit, period, owner: parseOwner(rest) };
}

const SHARED = "-";
const OWN = "=";

export type PeriodUnit = "day" | "week" | "month";

interface Period {
  /** The name is a month such as `2026-11`, or a date such as `2026-11-15`. A week has the name of its first day. */
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
}

const DAY_MS = 86_400_000;

/** The period of the last call for each unit. */
const latest: Partial<Record<PeriodUnit, Period>> = {};

export function periodAt(unit: PeriodUnit, nowMs: number): Period {
  const known = latest[unit];
  if (known !== undefined && nowMs >= known.startMs && nowMs < known.endMs) return known;
  const period = computePeriod(unit, nowMs);
  latest[unit] = period;
  return period;
}

function computePeriod(unit: PeriodUnit, nowMs: number): Period {
  const now = new Date(nowMs);
  const [year, month, date] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()];
  if (unit === "month") {
    const startMs = Date.UTC(year, month, 1);
    return { name: isoDay(startMs).slice(0, "2026-11".length), startMs, endMs: Date.UTC(year, month + 1, 1) };
  }
  const today = Date.UTC(year, month, date);
  // `getUTCDay` returns 0 for Sunday, but weeks start on Monday.
  const startMs = unit === "day" ? today : today - ((now.getUTCDay() + 6) % 7) * DAY_MS;
  return { name: isoDay(startMs), startMs, endMs: startMs + (unit === "day" ? DAY_MS : 7 * DAY_MS) };
}

/** Keeps counters for one more period, so that they survive a clock that jumps ahead and back. */
export function keptUntilMs({ startMs, endMs }: Period): number {
  return endMs + (endMs - startMs);
}

/** Returns the seconds until the period ends, rounded up, and at least 1. */
export function secondsLeft({ endMs }: Period, nowMs: number): number {
  return Math.max(1, Math.ceil((endMs - nowMs) / 1000));
}

/** Formats only the date, because `toISOString` also formats the time and takes several times as long. */
function isoDay(atMs: number): string {
  const at = new Date(atMs);
  return `${at.getUTCFullYear()}-${twoDigits(at.getUTCMonth() + 1)}-${twoDigits(at.getUTCDate())}`;
}

function twoDigits(value: number): string {
  return value < 10 ? `0${value}` : String(value);
}

type BudgetUnit = "cost" | "tokens";

const PER_DOLLAR = 1_000_000_000;

/** Limits a budget in dollars, so that amounts in billionths of a dollar are exact integers. */
export const MAX_COST = 1_000_000;
export const MAX_BUDGET_TOKENS = 1_000_000_000_000;

export function toStoredAmount(unit: BudgetUnit, amount: number): number {
  return unit === "tokens" ? Math.round(amount) : Math.round(amount * PER_DOLLAR);
}

export function fromStoredAmount(unit: BudgetUnit, counted: number): number {
  return unit === "tokens" ? counted : counted / PER_DOLLAR;
}

/** Formats an amount for headers and people. Dollars have up to six decimals and are rounded down. */
export function formatAmount(unit: BudgetUnit, counted: number): string {
  if (unit === "tokens") return String(counted);
  return (Math.floor(counted / 1000) / 1_000_000).toFixed(6).replace(/\.?0+$/, "");
}

export function displayUnit(unit: BudgetUnit): "usd" | "tokens" {
  return unit === "tokens" ? "tokens" : "usd";
}

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
