/**
 * Writes a batch of rows and their hourly usage in one transaction. A row that is already stored is ignored and not
 * counted again, so a batch can be written any number of times.
 */
import type { HistoryEngine, Sql } from "./engine.ts";
import { COLUMNS, type HistoryRow, parseCharges, type RowValue } from "./history-row.ts";
import { DIMENSIONS, SUMS } from "./migrations.ts";

export const HOUR_MS = 3_600_000;
/** Both databases limit the parameters of a statement: 32766 in SQLite, 65535 in PostgreSQL. */
const ROWS_PER_STATEMENT = 100;

const ADDED = SUMS.map((name) => `${name} = gateway_usage.${name} + excluded.${name}`).join(", ");
const USAGE_COLUMNS = ["hour", ...DIMENSIONS, ...SUMS];
const INSERT_ROWS = `INSERT INTO gateway_requests (${COLUMNS.join(", ")}) VALUES`;
const INSERT_USAGE = `INSERT INTO gateway_usage (${USAGE_COLUMNS.join(", ")}) VALUES`;
const INSERT_SPENDING = "INSERT INTO gateway_spending (account, amount, time) VALUES";
const SPENDING_CONFLICT =
  "ON CONFLICT (account) DO UPDATE SET amount = gateway_spending.amount + excluded.amount, time = excluded.time";
const USAGE_CONFLICT = `ON CONFLICT (hour, ${DIMENSIONS.join(", ")}) DO UPDATE SET ${ADDED}`;

/** Resolves with the number of rows that were not stored before. */
export function writeRows(engine: HistoryEngine, rows: readonly HistoryRow[]): Promise<number> {
  return engine.transaction(async (sql) => {
    const added = await insertRows(sql, rows);
    await addUsage(sql, added);
    await addSpending(sql, added);
    return added.length;
  });
}

async function insertRows(sql: Sql, rows: readonly HistoryRow[]): Promise<HistoryRow[]> {
  const byId = new Map(rows.map((row) => [row.id, row]));
  const values = [...byId.values()].map((row) => COLUMNS.map((name): RowValue => row[name]));
  const added = await insert(sql, INSERT_ROWS, values, "ON CONFLICT (time, id) DO NOTHING RETURNING id");
  return added.flatMap(({ id }) => byId.get(String(id)) ?? []);
}

async function addUsage(sql: Sql, rows: readonly HistoryRow[]): Promise<void> {
  const sums = new Map<string, number[]>();
  for (const row of rows) {
    const key = JSON.stringify([Math.floor(row.time / HOUR_MS) * HOUR_MS, ...dimensionsOf(row)]);
    const sum = sums.get(key);
    const counted = countedOf(row);
    if (sum === undefined) sums.set(key, counted);
    else for (const [i, amount] of counted.entries()) sum[i] = (sum[i] as number) + amount;
  }
  // Replicas update the same entries, and a common order prevents deadlocks.
  const entries = [...sums].sort(([one], [other]) => (one < other ? -1 : 1));
  const values = entries.map(([key, sum]) => [...(JSON.parse(key) as RowValue[]), ...sum]);
  await insert(sql, INSERT_USAGE, values, USAGE_CONFLICT);
}

/** The sums of what budgets charged, which `/debug/usage/budgets` compares with the counters in the store. */
async function addSpending(sql: Sql, rows: readonly HistoryRow[]): Promise<void> {
  const sums = new Map<string, [amount: number, time: number]>();
  for (const { charges, time } of rows)
    for (const { account, amount } of parseCharges(charges)) {
      const [sum, latest] = sums.get(account) ?? [0, 0];
      sums.set(account, [sum + amount, Math.max(latest, time)]);
    }
  const entries = [...sums].sort(([one], [other]) => (one < other ? -1 : 1));
  await insert(
    sql,
    INSERT_SPENDING,
    entries.map(([account, [amount, time]]) => [account, amount, time]),
    SPENDING_CONFLICT,
  );
}

function dimensionsOf(row: HistoryRow): string[] {
  return DIMENSIONS.map((name) => (name === "user_name" ? row.subject : row[name]));
}

function countedOf(row: HistoryRow): number[] {
  return SUMS.map((name) => {
    if (name === "requests") return 1;
    if (name === "ok" || name === "rejected" || name === "failed" || name === "aborted")
      return row.result === name ? 1 : 0;
    return row[name];
  });
}

/** A statement for a full chunk is prepared once, and the rest of a batch is written row by row in small chunks. */
async function insert(sql: Sql, head: string, values: readonly (readonly RowValue[])[], tail: string) {
  const results: Readonly<Record<string, unknown>>[] = [];
  for (let at = 0; at < values.length; ) {
    const left = values.length - at;
    const size = left >= ROWS_PER_STATEMENT ? ROWS_PER_STATEMENT : largestPower(left);
    const chunk = values.slice(at, at + size);
    at += size;
    results.push(...(await sql.all(statementFor(head, size, chunk[0]?.length ?? 0, tail), chunk.flat())));
  }
  return results;
}

/** Sizes are powers of two, so that few statements are prepared. */
function largestPower(size: number): number {
  return 2 ** Math.floor(Math.log2(size));
}

const statements = new Map<string, string>();

function statementFor(head: string, rows: number, columns: number, tail: string): string {
  const key = `${rows} ${head}`;
  let statement = statements.get(key);
  if (statement === undefined) {
    let count = 0;
    const row = (): string => `(${Array.from({ length: columns }, () => `$${++count}`).join(", ")})`;
    statement = `${head} ${Array.from({ length: rows }, row).join(", ")} ${tail}`;
    statements.set(key, statement);
  }
  return statement;
}
