/**
 * Finds single requests in the history, deletes the rows of a user, and removes rows after their retention.
 */
import type { HistoryEngine, Sql } from "./engine.ts";
import { type Charge, COLUMNS, type HistoryRow } from "./history-row.ts";
import { DIMENSIONS, SUMS } from "./migrations.ts";

/** Clients can choose request ids, so an id can occur many times. */
const ROWS_OF_ONE_ID = 20;
/**
 * Requests and usage are deleted in transactions of at most this many rows, so that writes are not delayed for long.
 */
const ROWS_PER_STEP = 1_000;
export const DELETED_USER = "(deleted)";

export async function requestsBefore(sql: Sql, beforeMs: number, limit: number): Promise<HistoryRow[]> {
  return (await sql.all(
    `SELECT ${COLUMNS.join(", ")} FROM gateway_requests WHERE time < $1 ORDER BY time DESC, id DESC LIMIT ${limit}`,
    [beforeMs],
  )) as unknown as HistoryRow[];
}

export async function requestsWithId(engine: HistoryEngine, id: string): Promise<HistoryRow[]> {
  return (await engine.reader.all(
    `SELECT ${COLUMNS.join(", ")} FROM gateway_requests WHERE ${engine.requestIdCondition} ORDER BY time DESC LIMIT ${ROWS_OF_ONE_ID}`,
    [id],
  )) as unknown as HistoryRow[];
}

/** Resolves with the number of deleted rows. The sums of the user are added to those of `DELETED_USER`. */
export async function deleteSubject(engine: HistoryEngine, subject: string): Promise<number> {
  let deleted = 0;
  for (;;) {
    const step = await engine.transaction((sql) => sql.deleteRows({ subject }, ROWS_PER_STEP));
    deleted += step;
    if (step < ROWS_PER_STEP) break;
  }
  // The name of an API key without a user is both the user and the key.
  await renameUser(engine, "user_name", subject);
  await renameUser(engine, "key", subject);
  await engine.transaction((sql) =>
    sql.all(
      "DELETE FROM gateway_spending WHERE substr(account, length(account) - length(CAST($1 AS TEXT)) + 1) = CAST($1 AS TEXT)",
      [`/=${subject}`],
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
  const rows = await engine.transaction((sql) => sql.deleteRows({ beforeMs: nowMs - rowsMs }, ROWS_PER_STEP));
  const usage = await deleteSome(engine, "gateway_usage", "hour < $1", nowMs - usageMs);
  await deleteSome(engine, "gateway_spending", "time < $1", nowMs - usageMs);
  if (rows + usage > 0) await engine.reclaim();
  return rows >= ROWS_PER_STEP || usage >= ROWS_PER_STEP;
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
