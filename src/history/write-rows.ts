/**
 * Writes a batch of rows and their hourly usage in one transaction. A row that is already stored is ignored and not
 * counted again, so a batch can be written any number of times.
 */
import type { HistoryEngine, ResultRow, Sql } from "./engine.ts";
import { COLUMN_INDEX, COLUMNS, parseCharges, type RowValue, type RowValues } from "./history-row.ts";
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

const DIMENSION_INDEXES = DIMENSIONS.map((name) => COLUMN_INDEX[name === "user_name" ? "subject" : name]);
const RESULTS = ["ok", "rejected", "failed", "aborted"] as const;
/** `requests` and the results are counted. The other sums add the column of the same name. */
const FIRST_AMOUNT = 1 + RESULTS.length;
const AMOUNT_INDEXES = SUMS.slice(FIRST_AMOUNT).map((name) => COLUMN_INDEX[name as keyof typeof COLUMN_INDEX]);

/** Resolves with the number of rows that were not stored before. */
export function writeRows(engine: HistoryEngine, rows: readonly RowValues[]): Promise<number> {
  return engine.transaction(async (sql) => {
    const added = await insertRows(sql, rows);
    await addUsage(sql, added);
    await addSpending(sql, added);
    return added.length;
  });
}

async function insertRows(sql: Sql, rows: readonly RowValues[]): Promise<RowValues[]> {
  const byId = new Map(rows.map((row) => [row[0] as string, row]));
  const values = byId.size === rows.length ? rows : [...byId.values()];
  const added = await insert(sql, INSERT_ROWS, values, "ON CONFLICT (time, id) DO NOTHING RETURNING id");
  return added.map(({ id }) => byId.get(String(id)) as RowValues);
}

interface UsageEntry {
  readonly hour: number;
  readonly row: RowValues;
  readonly sums: number[];
}

async function addUsage(sql: Sql, rows: readonly RowValues[]): Promise<void> {
  const entries = new Map<string, UsageEntry>();
  for (const row of rows) {
    const time = row[COLUMN_INDEX.time] as number;
    const hour = time - (time % HOUR_MS);
    // The values are expected to contain no line breaks.
    let key = String(hour);
    for (const index of DIMENSION_INDEXES) key += `\n${row[index]}`;
    let entry = entries.get(key);
    if (entry === undefined) {
      entry = { hour, row, sums: SUMS.map(() => 0) };
      entries.set(key, entry);
    }
    addTo(entry.sums, row);
  }
  // Replicas update the same entries, and a common order prevents deadlocks.
  const sorted = [...entries].sort(([one], [other]) => (one < other ? -1 : 1));
  const values = sorted.map(([, { hour, row, sums }]) => [
    hour,
    ...DIMENSION_INDEXES.map((index) => row[index] as string),
    ...sums,
  ]);
  await insert(sql, INSERT_USAGE, values, USAGE_CONFLICT);
}

function addTo(sums: number[], row: RowValues): void {
  sums[0] = (sums[0] as number) + 1;
  const result = 1 + RESULTS.indexOf(row[COLUMN_INDEX.result] as (typeof RESULTS)[number]);
  if (result > 0) sums[result] = (sums[result] as number) + 1;
  for (const [i, index] of AMOUNT_INDEXES.entries())
    sums[FIRST_AMOUNT + i] = (sums[FIRST_AMOUNT + i] as number) + Number(row[index]);
}

/** Adds the amounts that budgets charged to the sums per account. */
async function addSpending(sql: Sql, rows: readonly RowValues[]): Promise<void> {
  const sums = new Map<string, [amount: number, time: number]>();
  for (const row of rows)
    for (const { account, amount } of parseCharges(row[COLUMN_INDEX.charges] as string)) {
      const [sum, latest] = sums.get(account) ?? [0, 0];
      sums.set(account, [sum + amount, Math.max(latest, row[COLUMN_INDEX.time] as number)]);
    }
  const entries = [...sums].sort(([one], [other]) => (one < other ? -1 : 1));
  await insert(
    sql,
    INSERT_SPENDING,
    entries.map(([account, [amount, time]]) => [account, amount, time]),
    SPENDING_CONFLICT,
  );
}

/** Writes full chunks, and then chunks whose sizes are powers of two, so that few different statements are prepared. */
async function insert(sql: Sql, head: string, rows: readonly RowValues[], tail: string): Promise<ResultRow[]> {
  const results: ResultRow[] = [];
  for (let at = 0; at < rows.length; ) {
    const left = rows.length - at;
    const size = left >= ROWS_PER_STATEMENT ? ROWS_PER_STATEMENT : largestPower(left);
    const parameters: RowValue[] = [];
    for (const end = at + size; at < end; at++) for (const value of rows[at] as RowValues) parameters.push(value);
    const statement = statementFor(head, size, parameters.length / size, tail);
    for (const result of await sql.all(statement, parameters)) results.push(result);
  }
  return results;
}

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
