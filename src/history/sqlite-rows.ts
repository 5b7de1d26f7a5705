/**
 * Stores the rows of requests in SQLite. Values that many rows have in common are stored once per hour in
 * `gateway_attributes`. An index of the random request IDs of all rows would change a page of the file for almost every
 * row, so rows have the number of a bucket, and IDs are indexed by bucket. The view `gateway_requests` has all columns.
 */
import type { Statement } from "node-sqlite3-wasm";
import type { RowSelection } from "./engine.ts";
import { COLUMN_INDEX, type Column, IS_NUMBER, OWN_COLUMNS, type RowValue, SHARED_COLUMNS } from "./history-row.ts";
import { batchTexts, type RowBatch, valueAt } from "./row-batch.ts";
import { HOUR_MS, hourOf, type RowGroups } from "./row-groups.ts";

/** A search for a request ID looks into each bucket. */
const BUCKET_ROWS = 4_096;
const KEPT_ATTRIBUTES = 10_000;

const isNumber = (name: Column): boolean => IS_NUMBER[COLUMN_INDEX[name]] === true;
/** A search by one of these columns uses an index. */
const isSearched = (name: Column): boolean => name === "id" || name === "request_id";
/** Other absent texts are NULL, which is cheaper to write than an empty text. */
const columnType = (name: Column): string => (isNumber(name) ? "INTEGER" : isSearched(name) ? "TEXT NOT NULL" : "TEXT");
const shownColumn = (table: string, name: Column): string =>
  isNumber(name) || isSearched(name) ? `${table}.${name}` : `COALESCE(${table}.${name}, '') AS ${name}`;

const KEY = ["time", "id"] as const;
const OTHER_OWN_COLUMNS = OWN_COLUMNS.filter((name) => !KEY.some((key) => key === name));
const ROW_COLUMNS = [...KEY, "attributes", "bucket", ...OTHER_OWN_COLUMNS];

export const SQLITE_ROW_TABLES: readonly string[] = [
  `CREATE TABLE gateway_attributes (
  hour INTEGER NOT NULL,
  number INTEGER NOT NULL,
  ${SHARED_COLUMNS.map((name) => `${name} ${columnType(name)},`).join("\n  ")}
  PRIMARY KEY (hour, number)
) WITHOUT ROWID`,
  `CREATE TABLE gateway_rows (
  time INTEGER NOT NULL,
  id ${columnType("id")},
  attributes INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  ${OTHER_OWN_COLUMNS.map((name) => `${name} ${columnType(name)},`).join("\n  ")}
  PRIMARY KEY (time, id)
) WITHOUT ROWID`,
  "CREATE INDEX gateway_rows_request_id ON gateway_rows (bucket, request_id)",
  `CREATE VIEW gateway_requests AS SELECT ${OWN_COLUMNS.map((name) => shownColumn("r", name)).join(", ")}, ${SHARED_COLUMNS.map((name) => shownColumn("a", name)).join(", ")}, r.bucket
FROM gateway_rows r LEFT JOIN gateway_attributes a ON a.hour = r.time - r.time % ${HOUR_MS} AND a.number = r.attributes`,
];

/** Matches rows of `gateway_requests` with the request ID `$1`. */
export const SQLITE_REQUEST_ID = `request_id = $1 AND bucket IN (
  WITH RECURSIVE buckets (bucket) AS (
    SELECT MIN(bucket) FROM gateway_rows
    UNION ALL SELECT bucket + 1 FROM buckets WHERE bucket < (SELECT MAX(bucket) FROM gateway_rows)
  ) SELECT bucket FROM buckets)`;

const placeholders = (count: number): string => Array.from({ length: count }, () => "?").join(", ");
const INSERT_ROW = `INSERT INTO gateway_rows (${ROW_COLUMNS.join(", ")}) VALUES (${placeholders(ROW_COLUMNS.length)}) ON CONFLICT (time, id) DO NOTHING`;
const INSERT_ATTRIBUTES = `INSERT INTO gateway_attributes (hour, number, ${SHARED_COLUMNS.join(", ")}) VALUES (${placeholders(SHARED_COLUMNS.length + 2)})`;
const DELETE_SUBJECT = `DELETE FROM gateway_rows WHERE (time, id) IN (
  SELECT time, id FROM gateway_rows WHERE time >= ?1 AND time < ?1 + ${HOUR_MS}
    AND attributes IN (SELECT number FROM gateway_attributes WHERE hour = ?1 AND subject = ?2) LIMIT ?3)`;
const DELETE_BEFORE =
  "DELETE FROM gateway_rows WHERE (time, id) IN (SELECT time, id FROM gateway_rows WHERE time < ? ORDER BY time LIMIT ?)";
const DELETE_ATTRIBUTES_BEFORE =
  "DELETE FROM gateway_attributes WHERE (hour, number) IN (SELECT hour, number FROM gateway_attributes WHERE hour <= ? ORDER BY hour LIMIT ?)";

const SHARED_INDEXES = SHARED_COLUMNS.map((name) => COLUMN_INDEX[name]);
const OTHER_OWN_INDEXES = OTHER_OWN_COLUMNS.map((name) => COLUMN_INDEX[name]);

export class SqliteRows {
  readonly #prepared: (statement: string) => Statement;
  /** Maps an hour and shared values to their number in `gateway_attributes`. */
  readonly #known = new Map<string, number>();
  /** The attributes that were inserted last. */
  #last: { readonly hour: number; readonly number: number } | undefined = undefined;
  #bucket: number | undefined = undefined;
  #rowsInBucket = 0;

  constructor(prepared: (statement: string) => Statement) {
    this.#prepared = prepared;
  }

  /** Returns the indexes of the rows that were not stored before. */
  insert(batch: RowBatch, groups: RowGroups): number[] {
    const texts = batchTexts(batch);
    const stored = (row: number, column: number): RowValue => {
      const value = valueAt(batch, texts, row, column);
      return value === "" && column !== COLUMN_INDEX.request_id ? null : value;
    };
    const numbers = groups.firstRows.map((row) =>
      this.#attributes(
        hourOf(stored(row, COLUMN_INDEX.time) as number),
        SHARED_INDEXES.map((i) => stored(row, i)),
      ),
    );
    let bucket = this.#currentBucket();
    // Preparing another statement could close this one.
    const statement = this.#prepared(INSERT_ROW);
    const parameters: RowValue[] = [];
    const added: number[] = [];
    for (let row = 0; row < batch.rows; row++) {
      parameters.length = 0;
      parameters.push(stored(row, COLUMN_INDEX.time), stored(row, COLUMN_INDEX.id));
      parameters.push(numbers[groups.groupOfRow[row] as number] as number, bucket);
      for (const i of OTHER_OWN_INDEXES) parameters.push(stored(row, i));
      if (statement.run(parameters).changes === 0) continue;
      this.#rowsInBucket += 1;
      if (this.#rowsInBucket === BUCKET_ROWS) bucket = this.#currentBucket();
      added.push(row);
    }
    return added;
  }

  /** Deletes up to `limit` rows, and the attributes that no row has any longer. Returns the number of rows. */
  delete(selection: RowSelection, limit: number): number {
    return "subject" in selection
      ? this.#deleteSubject(selection.subject, limit)
      : this.#deleteBefore(selection.beforeMs, limit);
  }

  /** Must be called when a transaction was rolled back. */
  forget(): void {
    this.#known.clear();
    this.#last = undefined;
    this.#bucket = undefined;
  }

  #attributes(hour: number, values: readonly RowValue[]): number {
    const key = JSON.stringify([hour, ...values]);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const number = this.#lastNumber(hour) + 1;
    this.#prepared(INSERT_ATTRIBUTES).run([hour, number, ...values]);
    if (this.#known.size >= KEPT_ATTRIBUTES) this.#known.clear();
    this.#known.set(key, number);
    this.#last = { hour, number };
    return number;
  }

  #lastNumber(hour: number): number {
    if (this.#last?.hour === hour) return this.#last.number;
    return this.#number("SELECT MAX(number) AS n FROM gateway_attributes WHERE hour = ?", hour) ?? 0;
  }

  /** Returns the column `n` of the only row, or undefined if it is NULL. */
  #number(statement: string, ...parameters: RowValue[]): number | undefined {
    // `get` would leave the statement open, and an open statement keeps the write-ahead log from being reset.
    const [found] = this.#prepared(statement).all(parameters);
    return (found?.n as number | null | undefined) ?? undefined;
  }

  #currentBucket(): number {
    if (this.#bucket === undefined) {
      this.#bucket = (this.#number("SELECT MAX(bucket) AS n FROM gateway_rows") ?? 0) + 1;
      this.#rowsInBucket = 0;
    } else if (this.#rowsInBucket >= BUCKET_ROWS) {
      this.#bucket += 1;
      this.#rowsInBucket = 0;
    }
    return this.#bucket;
  }

  #deleteSubject(subject: string, limit: number): number {
    const hours = this.#prepared("SELECT DISTINCT hour FROM gateway_attributes WHERE subject = ?").all([subject]);
    if (hours.length > 0) this.#known.clear();
    let deleted = 0;
    for (const { hour } of hours as { hour: number }[]) {
      deleted += this.#prepared(DELETE_SUBJECT).run([hour, subject, limit - deleted]).changes;
      if (deleted >= limit) break;
      this.#prepared("DELETE FROM gateway_attributes WHERE hour = ? AND subject = ?").run([hour, subject]);
    }
    return deleted;
  }

  #deleteBefore(beforeMs: number, limit: number): number {
    const { changes } = this.#prepared(DELETE_BEFORE).run([beforeMs, limit]);
    const expired = this.#prepared(DELETE_ATTRIBUTES_BEFORE).run([beforeMs - HOUR_MS, limit]);
    if (expired.changes > 0) this.#known.clear();
    return changes;
  }
}
