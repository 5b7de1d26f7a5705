/**
 * Reads the spending of budgets, deletes the rows of a user, and removes rows after their retention.
 */
import { boundedKey } from "../../base/bounded-key.ts";
import type { HistoryEngine, Sql } from "./engine.ts";
import { type Charge, storedAccount } from "./history-row.ts";
import { oneLine, shortName } from "./row-batch.ts";
import { DIMENSIONS, SUMS } from "./usage-columns.ts";

/** Rows are deleted in transactions of at most this many, so that writes are not delayed for long. */
export const ROWS_PER_STEP = 1_000;
export const DELETED_USER = "(deleted)";

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
