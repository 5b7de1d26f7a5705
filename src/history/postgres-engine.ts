/**
 * Stores the history in PostgreSQL. Writes and reads use separate connections, so that a long report does not delay the
 * writer. Every statement has a time limit.
 */
import pg from "pg";
import { type HistoryEngine, oneAtATime, type ResultRow, type Sql, UnstorableRow } from "./engine.ts";

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

  async function transact<Result>(work: (sql: Sql) => Promise<Result>): Promise<Result> {
    await writer.query("BEGIN");
    try {
      const result = await work({ all: (statement, parameters) => run(writer, statement, parameters) });
      await writer.query("COMMIT");
      return result;
    } catch (error) {
      // The rollback fails if the connection is broken, but then there is no transaction.
      await writer.query("ROLLBACK").catch(() => undefined);
      throw error;
    }
  }

  return {
    kind: "postgres",
    reader: { all: (statement, parameters) => inReader(async () => run(await reader(), statement, parameters)) },
    transaction: (work) => inWriter(() => transact(work)),
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

async function run(client: pg.Client, statement: string, parameters: readonly unknown[] = []): Promise<ResultRow[]> {
  try {
    return (await client.query(statement, [...parameters])).rows as ResultRow[];
  } catch (error) {
    const { code = "", message } = error as Error & { code?: string };
    // Classes 22 and 23 are invalid values and violated constraints.
    if (/^2[23]/.test(code)) throw new UnstorableRow(message);
    throw error;
  }
}
