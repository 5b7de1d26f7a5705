/**
 * Stores the history in PostgreSQL. Writes and reads use separate connections, so that a long report does not delay the
 * writer. Every statement has a time limit.
 */
import pg from "pg";
import { type HistoryEngine, oneAtATime, type ResultRow, type RowSql, UnstorableRow } from "./engine.ts";
import {
  COLUMN_INDEX,
  COLUMNS,
  type HistoryRow,
  IS_NUMBER,
  OWN_COLUMNS,
  type RowValue,
  SHARED_COLUMNS,
} from "./history-row.ts";
import { ROWS_PER_STEP } from "./queries.ts";
import { type GroupedRows, valueAt } from "./row-batch.ts";

const CONNECT_LIMIT_MS = 3_000;
const WRITE_LIMIT_MS = 5_000;
const READ_LIMIT_MS = 15_000;

/** Sums of BIGINT columns are NUMERIC. The values are small enough for exact doubles. */
const NUMERIC_TYPES = [pg.types.builtins.INT8, pg.types.builtins.NUMERIC];

export async function openPostgresEngine(url: string, lost: (error: Error) => void): Promise<HistoryEngine> {
  const writer = await connect(url, WRITE_LIMIT_MS, lost);
  let readerClient: pg.Client | undefined;
  let opening: Promise<pg.Client> | undefined;
  const inWriter = oneAtATime();
  const inReader = oneAtATime();

  /** Opens the connection for reads when it is first needed, and again after it was lost. */
  function reader(): Promise<pg.Client> {
    if (readerClient !== undefined) return Promise.resolve(readerClient);
    opening ??= connect(url, READ_LIMIT_MS, () => {
      readerClient = undefined;
    })
      .then((client) => {
        readerClient = client;
        return client;
      })
      .finally(() => {
        opening = undefined;
      });
    return opening;
  }

  const sql: RowSql = {
    all: (statement, parameters) => run(writer, statement, parameters),
    insertRows: (batch) => insertRows(writer, batch),
  };

  async function transact<Result>(work: (sql: RowSql) => Promise<Result>): Promise<Result> {
    await writer.query("BEGIN");
    try {
      const result = await work(sql);
      await writer.query("COMMIT");
      return result;
    } catch (error) {
      // The rollback fails if the connection is broken, but then there is no transaction.
      await writer.query("ROLLBACK").catch(() => undefined);
      throw error;
    }
  }

  const read = (statement: string, parameters?: readonly RowValue[]): Promise<ResultRow[]> =>
    inReader(async () => run(await reader(), statement, parameters));
  const transaction: HistoryEngine["transaction"] = (work) => inWriter(() => transact(work));
  /** Deletes up to `ROWS_PER_STEP` rows, and resolves with their number. */
  const deleteSome = (condition: string, value: RowValue): Promise<number> =>
    transaction(async (sql) => (await sql.all(deleteStatement(condition), [value])).length);

  return {
    kind: "postgres",
    reader: { all: read },
    rows: {
      before: (beforeMs, limit) =>
        read(`SELECT ${ALL} FROM gateway_requests WHERE time < $1 ORDER BY time DESC, id DESC LIMIT ${limit}`, [
          beforeMs,
        ]) as unknown as Promise<HistoryRow[]>,
      withRequestId: (id, limit) =>
        read(`SELECT ${ALL} FROM gateway_requests WHERE request_id = $1 ORDER BY time DESC LIMIT ${limit}`, [
          id,
        ]) as unknown as Promise<HistoryRow[]>,
      async stored() {
        const [found] = await read("SELECT COUNT(*) AS n, MIN(time) AS first, MAX(time) AS last FROM gateway_requests");
        const { n = 0, first, last } = found as Record<string, number | null>;
        return { rows: n ?? 0, firstMs: first ?? undefined, lastMs: last ?? undefined };
      },
      async deleteSubject(subject) {
        let deleted = 0;
        for (;;) {
          const step = await deleteSome("subject = $1", subject);
          deleted += step;
          if (step < ROWS_PER_STEP) return deleted;
        }
      },
      expire: async (beforeMs) => (await deleteSome("time < $1", beforeMs)) >= ROWS_PER_STEP,
    },
    transaction,
    // PostgreSQL reclaims space by itself.
    reclaim: async () => undefined,
    async close() {
      await Promise.all([writer.end(), readerClient?.end()]).catch(() => undefined);
    },
  };
}

async function connect(url: string, limitMs: number, lost: (error: Error) => void): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    application_name: "gateway history",
    connectionTimeoutMillis: CONNECT_LIMIT_MS,
    statement_timeout: limitMs,
    // This limit also applies if the server does not respond.
    query_timeout: limitMs + 1_000,
    keepAlive: true,
    types: { getTypeParser },
  });
  client.on("error", lost);
  await client.connect();
  return client;
}

function getTypeParser(oid: number, format?: "text" | "binary"): ReturnType<typeof pg.types.getTypeParser> {
  return NUMERIC_TYPES.includes(oid) ? Number : pg.types.getTypeParser(oid, format as "text");
}

const arrayType = (name: (typeof COLUMNS)[number]): string => (IS_NUMBER[COLUMN_INDEX[name]] ? "bigint[]" : "text[]");

/** Shared values are sent once per group. The parameters are one array per column. */
const INSERT_ROWS = `INSERT INTO gateway_requests (${[...OWN_COLUMNS, ...SHARED_COLUMNS].join(", ")})
SELECT ${[...OWN_COLUMNS.map((name) => `r.${name}`), ...SHARED_COLUMNS.map((name) => `g.${name}`)].join(", ")}
FROM unnest(${["int[]", ...OWN_COLUMNS.map(arrayType)].map((type, i) => `$${i + 1}::${type}`).join(", ")}) AS r (group_index, ${OWN_COLUMNS.join(", ")})
JOIN unnest(${["int[]", ...SHARED_COLUMNS.map(arrayType)].map((type, i) => `$${OWN_COLUMNS.length + 2 + i}::${type}`).join(", ")}) AS g (group_index, ${SHARED_COLUMNS.join(", ")})
USING (group_index)
ON CONFLICT (time, id) DO NOTHING RETURNING id`;

async function insertRows(client: pg.Client, batch: GroupedRows): Promise<readonly number[]> {
  const { firstRows, groupOfRow } = batch;
  const all = Array.from(groupOfRow, (_, row) => row);
  const column = (name: (typeof COLUMNS)[number], rows: readonly number[]): RowValue[] =>
    rows.map((row) => valueAt(batch, row, COLUMN_INDEX[name]));
  const added = await run(client, INSERT_ROWS, [
    [...groupOfRow],
    ...OWN_COLUMNS.map((name) => column(name, all)),
    [...firstRows.keys()],
    ...SHARED_COLUMNS.map((name) => column(name, firstRows)),
  ]);
  if (added.length === batch.rows) return all;
  const byId = new Map(column("id", all).map((id, row) => [id, row]));
  return added.map(({ id }) => byId.get(String(id)) as number);
}

const ALL = COLUMNS.join(", ");

function deleteStatement(condition: string): string {
  return `DELETE FROM gateway_requests WHERE ctid IN (SELECT ctid FROM gateway_requests WHERE ${condition} LIMIT ${ROWS_PER_STEP}) RETURNING 1 AS one`;
}

async function run(client: pg.Client, statement: string, parameters: readonly unknown[] = []): Promise<ResultRow[]> {
  try {
    return (await client.query(statement, [...parameters])).rows as ResultRow[];
  } catch (error) {
    const { code = "", message } = error as Error & { code?: string };
    // Classes 22, 23, and 54 are invalid values, violated constraints, and values that are too large for an index.
    if (/^(?:2[23]|54)/.test(code)) throw new UnstorableRow(message);
    throw error;
  }
}
