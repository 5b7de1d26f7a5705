/**
 * Defines the tables of the history and their migrations. Migrations of PostgreSQL must only add tables and columns, so
 * that connected replicas of the previous version can continue to write.
 */
import { type HistoryEngine, NewerSchema, type RowSql, type Sql } from "./engine.ts";
import {
  COLUMN_INDEX,
  COLUMNS,
  type Column,
  DIMENSIONS,
  FIRST_COLUMNS,
  IS_NULLABLE,
  IS_NUMBER,
  type RowValues,
  SUMS,
} from "./history-row.ts";
import { batchOf, groupRows } from "./row-batch.ts";
import { SQLITE_ROW_TABLES, SQLITE_ROW_VIEW } from "./sqlite-rows.ts";

function columnType(name: Column): string {
  const i = COLUMN_INDEX[name];
  const type = name === "status" ? "INTEGER" : IS_NUMBER[i] ? "BIGINT" : "TEXT";
  return IS_NULLABLE[i] ? type : `${type} NOT NULL`;
}

const REQUESTS = `CREATE TABLE gateway_requests (
  ${FIRST_COLUMNS.map((name) => `${name} ${columnType(name)},`).join("\n  ")}
  PRIMARY KEY (time, id)
)`;

const USAGE = `CREATE TABLE gateway_usage (
  hour BIGINT NOT NULL,
  ${DIMENSIONS.map((name) => `${name} TEXT NOT NULL,`).join("\n  ")}
  ${SUMS.map((name) => `${name} BIGINT NOT NULL,`).join("\n  ")}
  PRIMARY KEY (hour, ${DIMENSIONS.join(", ")})
)`;

type Step = string | ((sql: RowSql) => Promise<void>);
type Migration = readonly Step[];

const COMMON: readonly Migration[] = [
  [
    // Each further index would slow down every write. A user's rows are rarely deleted, so a scan is enough for that.
    REQUESTS,
    "CREATE INDEX gateway_requests_request_id ON gateway_requests (request_id)",
    USAGE,
  ],
  [
    "ALTER TABLE gateway_requests ADD COLUMN charges TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE gateway_spending (account TEXT PRIMARY KEY, amount BIGINT NOT NULL, time BIGINT NOT NULL)",
  ],
];

/** Rows that an earlier version wrote have no time of the last request. */
const LAST_TIME: Migration = ["ALTER TABLE gateway_usage ADD COLUMN last_time BIGINT NOT NULL DEFAULT 0"];

const DETAILS = "ALTER TABLE gateway_requests ADD COLUMN details TEXT NOT NULL DEFAULT ''";

/** The index in the list plus 1 is the version. Released entries must not change. */
export const MIGRATIONS: Readonly<Record<HistoryEngine["kind"], readonly Migration[]>> = {
  postgres: [...COMMON, LAST_TIME, [DETAILS]],
  sqlite: [
    ...COMMON,
    // Version 3 is not needed to migrate from an earlier one.
    [],
    [moveRows],
    LAST_TIME,
    ["DROP VIEW gateway_requests", SQLITE_ROW_VIEW],
  ],
};

const MOVED_AT_ONCE = 1_000;
const MOVED_COLUMNS = COLUMNS.filter((name) => name !== "details");

/** Moves the rows of `gateway_requests`, which is a table in version 2 and a view in version 3, to blocks. */
async function moveRows(sql: RowSql): Promise<void> {
  for (const table of SQLITE_ROW_TABLES) await sql.all(table);
  let last: readonly [time: number, id: string] = [Number.MIN_SAFE_INTEGER, ""];
  for (;;) {
    const found = await sql.all(
      `SELECT ${MOVED_COLUMNS.join(", ")} FROM gateway_requests WHERE (time, id) > ($1, $2) ORDER BY time, id LIMIT ${MOVED_AT_ONCE}`,
      last,
    );
    const end = found.at(-1);
    if (end === undefined) break;
    const batch = batchOf(
      found.map((row) => COLUMNS.map((name) => row[name] ?? (name === "details" ? "" : null)) as RowValues),
    );
    await sql.insertRows(groupRows(batch));
    last = [Number(end.time), String(end.id)];
  }
  const [old] = await sql.all("SELECT type FROM sqlite_master WHERE name = 'gateway_requests'");
  const dropped =
    old?.type === "view"
      ? ["VIEW gateway_requests", "TABLE gateway_rows", "TABLE gateway_attributes"]
      : ["TABLE gateway_requests"];
  for (const name of dropped) await sql.all(`DROP ${name}`);
  await sql.all(SQLITE_ROW_VIEW);
}

/** This PostgreSQL lock serializes the migrations of replicas that start at the same time. */
const LOCK = 7_204_116;

/** Rejects with NewerSchema if the database has a version that this gateway does not know. */
export async function migrate(engine: HistoryEngine, migrations = MIGRATIONS[engine.kind]): Promise<void> {
  await engine.transaction(async (sql) => {
    if (engine.kind === "postgres") await sql.all(`SELECT pg_advisory_xact_lock(${LOCK})`);
    await sql.all("CREATE TABLE IF NOT EXISTS gateway_schema (version INTEGER NOT NULL)");
    const version = await schemaVersion(sql);
    if (version > migrations.length)
      throw new NewerSchema(
        `the history database has schema version ${version}, but this gateway supports up to version ${migrations.length}. Use the newer gateway, or another database`,
      );
    for (const step of migrations.slice(version).flat())
      if (typeof step === "string") await sql.all(step);
      else await step(sql);
    if (version === migrations.length) return;
    await sql.all("DELETE FROM gateway_schema");
    await sql.all("INSERT INTO gateway_schema (version) VALUES ($1)", [migrations.length]);
  });
}

export async function schemaVersion(sql: Sql): Promise<number> {
  const [row] = await sql.all("SELECT version FROM gateway_schema");
  return Number(row?.version ?? 0);
}
