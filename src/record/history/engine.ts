/**
 * Defines the database interface of the history, which SQLite and PostgreSQL implement. Statements use features of
 * both: `$1` parameters, `ON CONFLICT`, and `RETURNING`.
 */
import type { HistoryRow, RowValue } from "./history-row.ts";
import type { GroupedRows } from "./row-batch.ts";

export type ResultRow = Readonly<Record<string, unknown>>;

export interface Sql {
  all(statement: string, parameters?: readonly RowValue[]): Promise<ResultRow[]>;
}

/** Runs in a transaction. */
export interface RowSql extends Sql {
  /** Inserts the rows that are not stored yet, and resolves with their indexes in the batch. */
  insertRows(rows: GroupedRows): Promise<readonly number[]>;
}

/** Reads and deletes the rows of requests. Deletions use small transactions, so that writes are not delayed for long. */
export interface RowStore {
  /** Resolves with the newest rows before the time, newest first. */
  before(beforeMs: number, limit: number): Promise<HistoryRow[]>;
  /** Resolves with the newest rows that have the request ID, newest first. */
  withRequestId(id: string, limit: number): Promise<HistoryRow[]>;
  stored(): Promise<StoredRows>;
  /** Resolves with the number of deleted rows. */
  deleteSubject(subject: string): Promise<number>;
  /** Deletes some expired rows. Resolves with false if nothing was left to do. */
  expire(beforeMs: number): Promise<boolean>;
}

interface StoredRows {
  readonly rows: number;
  readonly firstMs: number | undefined;
  readonly lastMs: number | undefined;
}

export interface HistoryEngine {
  readonly kind: "sqlite" | "postgres";
  /** Reads do not wait for a transaction of the writer if the database allows that. */
  readonly reader: Sql;
  /** Runs the work in one transaction, and rolls it back if the work rejects. Transactions run one at a time. */
  transaction<Result>(work: (sql: RowSql) => Promise<Result>): Promise<Result>;
  readonly rows: RowStore;
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
