/**
 * Writes a batch of rows and their hourly usage in one transaction. A row that is already stored is ignored and not
 * counted again, so a batch can be written any number of times.
 */
import type { HistoryEngine, Sql } from "./engine.ts";
import { COLUMN_INDEX, COLUMNS, type RowValue, type RowValues, storedAccount } from "./history-row.ts";
import { batchOf, type RowBatch } from "./row-batch.ts";
import { type GroupedRows, groupRows, hourOf } from "./row-groups.ts";
import { parseCharges } from "./row-text.ts";
import { DIMENSIONS, SUMS } from "./usage-columns.ts";

const WIDTH = COLUMNS.length;
/** Both databases limit the parameters of a statement: 32766 in SQLite, 65535 in PostgreSQL. */
const ROWS_PER_STATEMENT = 100;

const ADDED = [
  ...SUMS.map((name) => `${name} = gateway_usage.${name} + excluded.${name}`),
  "last_time = CASE WHEN excluded.last_time > gateway_usage.last_time THEN excluded.last_time ELSE gateway_usage.last_time END",
].join(", ");
const USAGE_COLUMNS = ["hour", ...DIMENSIONS, ...SUMS, "last_time"];
const INSERT_USAGE = `INSERT INTO gateway_usage (${USAGE_COLUMNS.join(", ")}) VALUES`;
const INSERT_SPENDING = "INSERT INTO gateway_spending (account, amount, time) VALUES";
const SPENDING_CONFLICT =
  "ON CONFLICT (account) DO UPDATE SET amount = gateway_spending.amount + excluded.amount, time = excluded.time";
const USAGE_CONFLICT = `ON CONFLICT (hour, ${DIMENSIONS.join(", ")}) DO UPDATE SET ${ADDED}`;

const DIMENSION_INDEXES = DIMENSIONS.map((name) => COLUMN_INDEX[name === "user_name" ? "subject" : name]);
const RESULTS: readonly string[] = ["ok", "rejected", "failed", "aborted"];
/** `requests` and the results are counted. The other sums add the column of the same name. */
const FIRST_AMOUNT = 1 + RESULTS.length;
const AMOUNT_INDEXES = SUMS.slice(FIRST_AMOUNT).map((name) => COLUMN_INDEX[name as keyof typeof COLUMN_INDEX]);

export function writeRows(engine: HistoryEngine, rows: readonly RowValues[]): Promise<number> {
  return writeBatch(engine, batchOf(rows));
}

/** Resolves with the number of rows that were not stored before. */
export function writeBatch(engine: HistoryEngine, batch: RowBatch): Promise<number> {
  const rows = groupRows(batch);
  return engine.transaction(async (sql) => {
    const added = await sql.insertRows(rows);
    await addUsage(sql, rows, sumsByGroup(rows, added));
    await addSpending(sql, rows, added);
    return added.length;
  });
}

interface GroupSums {
  /** The first row of the group. */
  readonly row: number;
  readonly sums: number[];
  /** The arrival of the last request. */
  lastMs: number;
}

function sumsByGroup({ values, firstRows, groupOfRow }: GroupedRows, rows: readonly number[]): GroupSums[] {
  const all = firstRows.map((row): GroupSums => ({ row, sums: SUMS.map(() => 0), lastMs: 0 }));
  for (const row of rows) {
    const group = all[groupOfRow[row] as number] as GroupSums;
    const { sums } = group;
    group.lastMs = Math.max(group.lastMs, values[row * WIDTH + COLUMN_INDEX.time] as number);
    sums[0] = (sums[0] as number) + 1;
    for (let i = 0; i < AMOUNT_INDEXES.length; i++)
      sums[FIRST_AMOUNT + i] =
        (sums[FIRST_AMOUNT + i] as number) + (values[row * WIDTH + (AMOUNT_INDEXES[i] as number)] as number);
  }
  return all.filter(({ sums }) => sums[0] !== 0);
}

/** Adds the sums of groups with the same hour and dimensions, and then adds them to the stored usage. */
async function addUsage(sql: Sql, { values, texts }: GroupedRows, groups: readonly GroupSums[]) {
  const entries = new Map<string, RowValue[]>();
  for (const { row, sums, lastMs } of groups) {
    const at = row * WIDTH;
    const text = (index: number): string => texts[values[at + index] as number] as string;
    const result = RESULTS.indexOf(text(COLUMN_INDEX.result));
    if (result >= 0) sums[1 + result] = sums[0] as number;
    const dimensions = [hourOf(values[at + COLUMN_INDEX.time] as number), ...DIMENSION_INDEXES.map(text)];
    const key = dimensions.join("\n");
    const known = entries.get(key);
    if (known === undefined) entries.set(key, [...dimensions, ...sums, lastMs]);
    else {
      const last = known.length - 1;
      for (const [i, sum] of sums.entries()) known[dimensions.length + i] = Number(known[dimensions.length + i]) + sum;
      known[last] = Math.max(Number(known[last]), lastMs);
    }
  }
  // Replicas update the same entries, and a common order prevents deadlocks.
  const sorted = [...entries].sort(([one], [other]) => (one < other ? -1 : 1));
  await insert(
    sql,
    INSERT_USAGE,
    sorted.map(([, entry]) => entry),
    USAGE_CONFLICT,
  );
}

/** Adds the amounts that budgets charged to the sums per account. */
async function addSpending(sql: Sql, { values, texts }: GroupedRows, rows: readonly number[]) {
  const sums = new Map<string, [amount: number, time: number]>();
  for (const row of rows) {
    const charges = texts[values[row * WIDTH + COLUMN_INDEX.charges] as number] as string;
    if (charges === "") continue;
    const time = values[row * WIDTH + COLUMN_INDEX.time] as number;
    for (const { account, amount } of parseCharges(charges)) {
      const stored = storedAccount(account);
      const [sum, latest] = sums.get(stored) ?? [0, 0];
      sums.set(stored, [sum + amount, Math.max(latest, time)]);
    }
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
async function insert(sql: Sql, head: string, rows: readonly RowValues[], tail: string): Promise<void> {
  for (let at = 0; at < rows.length; ) {
    const left = rows.length - at;
    const size = left >= ROWS_PER_STATEMENT ? ROWS_PER_STATEMENT : largestPower(left);
    const parameters: RowValue[] = [];
    for (const end = at + size; at < end; at++) for (const value of rows[at] as RowValues) parameters.push(value);
    const statement = statementFor(head, size, parameters.length / size, tail);
    await sql.all(statement, parameters);
  }
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
