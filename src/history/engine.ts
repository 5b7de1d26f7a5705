/**
 * Defines the database interface of the history, which SQLite and PostgreSQL implement. Statements use features of
 * both: `$1` parameters, `ON CONFLICT`, and `RETURNING`.
 */
import type { RowValue } from "./history-row.ts";
import type { RowBatch } from "./row-batch.ts";
import type { RowGroups } from "./row-groups.ts";

export type ResultRow = Readonly<Record<string, unknown>>;

export interface Sql {
  all(statement: string, parameters?: readonly RowValue[]): Promise<ResultRow[]>;
}

/** Selects the rows of requests by subject or by time. */
export type RowSelection = { readonly subject: string } | { readonly beforeMs: number };

/** Changes the rows of requests in a transaction. */
export interface RowSql extends Sql {
  /** Inserts the rows that are not stored yet, and resolves with their indexes in the batch. */
  insertRows(batch: RowBatch, groups: RowGroups): Promise<readonly number[]>;
  /** Deletes up to `limit` rows, and resolves with their number. */
  deleteRows(selection: RowSelection, limit: number): Promise<number>;
}

export interface HistoryEngine {
  readonly kind: "sqlite" | "postgres";
  /** Reads do not wait for a transaction of the writer if the database allows that. */
  readonly reader: Sql;
  /** Runs the work in one transaction, and rolls it back if the work rejects. Transactions run one at a time. */
  transaction<Result>(work: (sql: RowSql) => Promise<Result>): Promise<Result>;
  /** The table with one row per request, whose columns include `time` and `id`. */
  readonly rowTable: string;
  /** A condition that selects rows of `gateway_requests` with the request ID `$1`. */
  readonly requestIdCondition: string;
  /** Frees disk space after rows were deleted, unless the database does so by itself. */
  reclaim(): Promise<void>;
  close(): Promise<void>;
}

/** Thrown if the database rejects a value. Writing the same row again would fail too. */
export class UnstorableRow extends Error {}

/** Thrown if a newer version of the gateway has migrated the database. */
export class NewerSchema extends Error {}

/** Returns a function that runs tasks one after another. */
export function oneAtATime(): <Result>(work: () => Promise<Result>) => Promise<Result> {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const done = last.then(work);
    last = done.catch(() => undefined);
    return done;
  };
}
