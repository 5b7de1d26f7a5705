/**
 * The two operations that the history needs from a database. SQLite and PostgreSQL implement them, and all statements
 * are written once, in the dialect that both understand: `$1` parameters, `ON CONFLICT`, and `RETURNING`.
 */
import type { RowValue } from "./history-row.ts";

export type ResultRow = Readonly<Record<string, unknown>>;

export interface Sql {
  all(statement: string, parameters?: readonly RowValue[]): Promise<ResultRow[]>;
}

export interface HistoryEngine {
  readonly kind: "sqlite" | "postgres";
  /** Reads do not wait for a transaction of the writer if the database allows that. */
  readonly reader: Sql;
  /** Runs the work in one transaction, and rolls it back if the work rejects. Transactions run one at a time. */
  transaction<Result>(work: (sql: Sql) => Promise<Result>): Promise<Result>;
  /** Frees space on disk after rows were deleted. */
  reclaim(): Promise<void>;
  close(): Promise<void>;
}

/** The database rejected a value, so that writing the same row again fails too. */
export class UnstorableRow extends Error {}

/** Another gateway of a newer version migrated the database. */
export class NewerSchema extends Error {}

/** Returns a function that runs each work after the previous one has ended. */
export function oneAtATime(): <Result>(work: () => Promise<Result>) => Promise<Result> {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const done = last.then(work);
    last = done.catch(() => undefined);
    return done;
  };
}
