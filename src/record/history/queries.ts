/**
 * Reads the usage of a time range and the amounts of budgets, and deletes users and expired rows.
 */

import { boundedKey } from "../../base/bounded-key.ts";
import type { UsageDimension, UsageGroup, UsageReport, UsageSums } from "../trace/traffic-numbers.ts";
import type { HistoryEngine, ResultRow, Sql } from "./engine.ts";
import { type Charge, DIMENSIONS, type RowValue, SUMS, storedAccount } from "./history-row.ts";
import { HOUR_MS, oneLine, shortName } from "./row-batch.ts";

const DAY_MS = 24 * HOUR_MS;
const TIME_GROUPS = { hour: "hour", day: `(hour - hour % ${DAY_MS})` } as const;

export interface UsageQuery {
  readonly by: readonly UsageGroup[];
  /** Times are in milliseconds since the epoch. `sinceMs` is rounded down to an hour, and `untilMs` is rounded up. */
  readonly sinceMs: number;
  readonly untilMs: number;
  readonly filter: Readonly<Partial<Record<UsageDimension, string>>>;
  readonly limit: number;
  readonly offset: number;
}

export async function readUsage(sql: Sql, query: UsageQuery): Promise<UsageReport> {
  const sinceMs = Math.floor(query.sinceMs / HOUR_MS) * HOUR_MS;
  const untilMs = Math.ceil(query.untilMs / HOUR_MS) * HOUR_MS;
  const parameters: RowValue[] = [sinceMs, untilMs];
  const conditions = ["hour >= $1", "hour < $2"];
  for (const [name, value] of Object.entries(query.filter)) {
    parameters.push(value);
    conditions.push(`${columnOf(name)} = $${parameters.length}`);
  }
  const from = `FROM gateway_usage WHERE ${conditions.join(" AND ")}`;
  const sums = [
    ...SUMS.map((name) => `COALESCE(SUM(${name}), 0) AS ${name}`),
    "COALESCE(MAX(last_time), 0) AS last_time",
  ].join(", ");
  const total = async () => (await sql.all(`SELECT ${sums} ${from}`, parameters))[0] ?? {};
  const report = {
    since: new Date(sinceMs).toISOString(),
    until: new Date(untilMs).toISOString(),
    by: query.by,
  };
  if (query.by.length === 0) return { ...report, rows: [], total: sumsOf(await total()), next: null };
  const groups = query.by.map(expressionOf);
  const names = query.by.map((_, i) => `g${i}`);
  // Rows are sorted by time groups, then by cost and requests. The group values make the order of pages stable.
  const times = query.by.flatMap((name, i) => (name in TIME_GROUPS ? [`g${i}`] : []));
  const order = [...times, "cost_nano DESC", "requests DESC", ...names].join(", ");
  const rows = await sql.all(
    `SELECT ${groups.map((group, i) => `${group} AS g${i}`).join(", ")}, ${sums} ${from} GROUP BY ${groups.join(", ")} ORDER BY ${order} LIMIT ${query.limit + 1} OFFSET ${query.offset}`,
    parameters,
  );
  // If the page has all groups, the total needs no second query.
  const isWhole = query.offset === 0 && rows.length <= query.limit;
  return {
    ...report,
    total: sumsOf(isWhole ? added(rows) : await total()),
    rows: rows.slice(0, query.limit).map((row) => ({
      ...Object.fromEntries(query.by.map((name, i) => [name, groupText(name, row[`g${i}`])])),
      ...sumsOf(row),
    })),
    next: rows.length > query.limit ? query.offset + query.limit : null,
  };
}

function added(rows: readonly ResultRow[]): ResultRow {
  return {
    ...Object.fromEntries(SUMS.map((name) => [name, rows.reduce((sum, row) => sum + Number(row[name]), 0)])),
    last_time: rows.reduce((last, row) => Math.max(last, Number(row.last_time)), 0),
  };
}

function expressionOf(group: UsageGroup): string {
  return group in TIME_GROUPS ? TIME_GROUPS[group as keyof typeof TIME_GROUPS] : columnOf(group);
}

function columnOf(name: string): string {
  return name === "user" ? "user_name" : name;
}

function groupText(group: UsageGroup, value: unknown): string {
  return group in TIME_GROUPS ? new Date(Number(value)).toISOString() : String(value);
}

const camelCase = (name: string): string => name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());

/** The sums have the names of their columns in camel case, and other units. */
function sumsOf(row: Readonly<Record<string, unknown>>): UsageSums {
  const {
    costNano = 0,
    durationUs = 0,
    ...sums
  } = Object.fromEntries(SUMS.map((name) => [camelCase(name), Number(row[name] ?? 0)]));
  const lastMs = Number(row.last_time ?? 0);
  return {
    ...(sums as Omit<UsageSums, "cost" | "durationMs" | "lastAt">),
    cost: costNano / 1e9,
    durationMs: durationUs / 1000,
    lastAt: lastMs > 0 ? new Date(lastMs).toISOString() : null,
  };
}

/** Rows are deleted in transactions of at most this many, so that writes are not delayed for long. */
export const ROWS_PER_STEP = 1_000;
const DELETED_USER = "(deleted)";

/** Resolves with the number of deleted rows. The sums of the user are added to those of `DELETED_USER`. */
export async function deleteSubject(engine: HistoryEngine, name: string): Promise<number> {
  const subject = oneLine(shortName(name));
  const deleted = await engine.rows.deleteSubject(subject);
  // The name of an API key without a user is both the user and the key.
  await renameUser(engine, "user_name", subject);
  await renameUser(engine, "key", subject);
  await engine.transaction((sql) =>
    sql.all(
      "DELETE FROM gateway_spending WHERE substr(account, length(account) - length(CAST($1 AS TEXT)) + 1) = CAST($1 AS TEXT)",
      [`/=${storedAccount(boundedKey(name))}`],
    ),
  );
  return deleted;
}

/** Returns the amounts that budgets charged, by the keys of their counters in the store. */
export async function readSpending(sql: Sql): Promise<Charge[]> {
  const rows = await sql.all("SELECT account, amount FROM gateway_spending");
  return rows.map(({ account, amount }) => ({ account: String(account), amount: Number(amount) }));
}

async function renameUser(engine: HistoryEngine, column: "user_name" | "key", subject: string): Promise<void> {
  const kept = DIMENSIONS.map((name) => (name === column ? "$2" : name)).join(", ");
  const added = SUMS.map((name) => `${name} = gateway_usage.${name} + excluded.${name}`).join(", ");
  await engine.transaction(async (sql) => {
    await sql.all(
      `INSERT INTO gateway_usage (hour, ${DIMENSIONS.join(", ")}, ${SUMS.join(", ")}) SELECT hour, ${kept}, ${SUMS.join(", ")} FROM gateway_usage WHERE ${column} = $1 ON CONFLICT (hour, ${DIMENSIONS.join(", ")}) DO UPDATE SET ${added}`,
      [subject, DELETED_USER],
    );
    await sql.all(`DELETE FROM gateway_usage WHERE ${column} = $1`, [subject]);
  });
}

export interface Retention {
  readonly rowsMs: number;
  readonly usageMs: number;
}

/** Deletes some expired rows. Resolves with true if more requests or usage may have expired. */
export async function expireSome(engine: HistoryEngine, { rowsMs, usageMs }: Retention, nowMs: number) {
  const hasDeleted = await engine.rows.expire(nowMs - rowsMs);
  const usage = await deleteSome(engine, "gateway_usage", "hour < $1", nowMs - usageMs);
  await deleteSome(engine, "gateway_spending", "time < $1", nowMs - usageMs);
  if (hasDeleted || usage > 0) await engine.reclaim();
  return hasDeleted || usage >= ROWS_PER_STEP;
}

async function deleteSome(
  engine: HistoryEngine,
  table: "gateway_usage" | "gateway_spending",
  condition: string,
  parameter: number,
): Promise<number> {
  const row = engine.kind === "postgres" ? "ctid" : "rowid";
  return engine.transaction(async (sql) => {
    const deleted = await sql.all(
      `DELETE FROM ${table} WHERE ${row} IN (SELECT ${row} FROM ${table} WHERE ${condition} LIMIT ${ROWS_PER_STEP}) RETURNING 1 AS one`,
      [parameter],
    );
    return deleted.length;
  });
}
