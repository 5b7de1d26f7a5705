/**
 * Stores the rows of requests in SQLite, in blocks of up to a thousand rows: binding and inserting single rows would
 * cost five times as much (ADR 45). A batch becomes a block, and small blocks of an hour are merged later. A block
 * contains JSON, so the view `gateway_requests` can show single rows.
 */
import type { Statement } from "node-sqlite3-wasm";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { RowStore } from "./engine.ts";
import {
  COLUMN_INDEX,
  COLUMNS,
  type HistoryRow,
  IS_NUMBER,
  OWN_COLUMNS,
  type RowValue,
  type RowValues,
  SHARED_COLUMNS,
} from "./history-row.ts";
import { batchOf, type GroupedRows, groupRows, hourOf, valueAt } from "./row-batch.ts";

const PACKED_ROWS = peerInput("history/packed-rows");

const BLOCK_ROWS = 1_000;
/** Larger blocks are not merged. */
const SMALL_BLOCK_ROWS = 500;
/** The small blocks of an hour are merged when there are this many, so that a row is seldom written again. */
const MERGED_BLOCKS = 16;
/**
 * A batch can be written twice only if it is resent after a crash of the thread, or is in the oldest file of the spool
 * after a crash of the process. Such a file has fewer batches than this.
 */
const KEPT_BATCHES = 100_000;

const SHARED_INDEXES = SHARED_COLUMNS.map((name) => COLUMN_INDEX[name]);
const OWN_INDEXES = OWN_COLUMNS.map((name) => COLUMN_INDEX[name]);

function shownColumn(name: (typeof COLUMNS)[number]): string {
  const own = OWN_COLUMNS.indexOf(name);
  const value =
    name === "details"
      ? `COALESCE(json_extract(r.value, '$[${own + 1}]'), '')`
      : own >= 0
        ? `json_extract(r.value, '$[${own + 1}]')`
        : `json_extract(CAST(b.shared AS TEXT), '$[' || json_extract(r.value, '$[0]') || '][${SHARED_COLUMNS.indexOf(name)}]')`;
  return `${value} AS ${name}`;
}

export const SQLITE_ROW_TABLES: readonly string[] = [
  // Searches read `request_ids` and `shared`, so they come before the larger column.
  `CREATE TABLE gateway_blocks (
  number INTEGER PRIMARY KEY,
  hour INTEGER NOT NULL,
  first_time INTEGER NOT NULL,
  last_time INTEGER NOT NULL,
  rows INTEGER NOT NULL,
  request_ids BLOB NOT NULL,
  shared BLOB NOT NULL,
  data BLOB NOT NULL
)`,
  "CREATE INDEX gateway_blocks_time ON gateway_blocks (last_time, first_time)",
  `CREATE INDEX gateway_blocks_small ON gateway_blocks (hour) WHERE rows <= ${SMALL_BLOCK_ROWS}`,
  "CREATE TABLE gateway_batches (number INTEGER PRIMARY KEY, first_id TEXT NOT NULL UNIQUE)",
];

export const SQLITE_ROW_VIEW = `CREATE VIEW gateway_requests AS SELECT ${COLUMNS.map(shownColumn).join(", ")}
FROM gateway_blocks b, json_each(CAST(b.data AS TEXT)) r`;

const INSERT_BATCH = "INSERT INTO gateway_batches (first_id) VALUES (?) ON CONFLICT DO NOTHING";
const DELETE_BATCHES = `DELETE FROM gateway_batches WHERE number <= (SELECT MAX(number) FROM gateway_batches) - ${KEPT_BATCHES}`;
const INSERT_BLOCK =
  "INSERT INTO gateway_blocks (hour, first_time, last_time, rows, request_ids, shared, data) VALUES (?, ?, ?, ?, ?, ?, ?)";
const DELETE_EXPIRED =
  "DELETE FROM gateway_blocks WHERE number = (SELECT number FROM gateway_blocks WHERE last_time < ? ORDER BY last_time LIMIT 1)";
const HOUR_TO_MERGE = `SELECT hour FROM gateway_blocks WHERE rows <= ${SMALL_BLOCK_ROWS} GROUP BY hour HAVING COUNT(*) >= ${MERGED_BLOCKS} LIMIT 1`;
const SMALL_BLOCKS = `SELECT number, rows FROM gateway_blocks WHERE hour = ? AND rows <= ${SMALL_BLOCK_ROWS} ORDER BY number`;

const BLOCK_BEFORE =
  "SELECT number, last_time, shared, data FROM gateway_blocks WHERE first_time < ? AND (last_time, number) < (?, ?) ORDER BY last_time DESC, number DESC LIMIT 1";

interface StoredBlock {
  readonly number: number;
  readonly last_time: number;
  readonly shared: Uint8Array;
  readonly data: Uint8Array;
}

type Transaction = <Result>(work: () => Result) => Promise<Result>;

export class SqliteRows implements RowStore {
  readonly #prepared: (statement: string) => Statement;
  readonly #transaction: Transaction;
  /** While a deletion is running, blocks are not merged, because that would hide their rows from it. */
  #deletions = 0;

  constructor(prepared: (statement: string) => Statement, transaction: Transaction) {
    this.#prepared = prepared;
    this.#transaction = transaction;
  }

  /** Returns the indexes of all rows, or none if the batch is already stored. A batch has the same rows each time. */
  insert(batch: GroupedRows): number[] {
    const firstId = valueAt(batch, 0, COLUMN_INDEX.id);
    if (this.#prepared(INSERT_BATCH).run([firstId]).changes === 0) return [];
    this.#insertBlock(batch);
    return Array.from({ length: batch.rows }, (_, row) => row);
  }

  async before(beforeMs: number, limit: number): Promise<HistoryRow[]> {
    let found: RowValues[] = [];
    let block: Pick<StoredBlock, "last_time" | "number"> = { last_time: Number.MAX_SAFE_INTEGER, number: 0 };
    for (;;) {
      const [next] = this.#all<StoredBlock>(BLOCK_BEFORE, beforeMs, block.last_time, block.number);
      // The rows of the remaining blocks are older than all rows that were found.
      if (next === undefined || (found.length === limit && timeOf(found.at(-1)) > next.last_time)) break;
      const older = rowsOf(next).filter((row) => timeOf(row) < beforeMs);
      found = [...found, ...older].sort(newestFirst).slice(0, limit);
      block = next;
    }
    return found.map(asObject);
  }

  async withRequestId(id: string, limit: number): Promise<HistoryRow[]> {
    const blocks = this.#all<StoredBlock>(
      "SELECT number FROM gateway_blocks WHERE instr(request_ids, ?) > 0 ORDER BY last_time DESC",
      hashOf(id),
    );
    const found: RowValues[] = [];
    for (const { number } of blocks) {
      if (found.length >= limit) break;
      found.push(...this.#rowsOf(number).filter((row) => row[COLUMN_INDEX.request_id] === id));
    }
    return found.sort(newestFirst).slice(0, limit).map(asObject);
  }

  async stored() {
    const [found] = this.#all<{ n: number | null; first: number | null; last: number | null }>(
      "SELECT SUM(rows) AS n, MIN(first_time) AS first, MAX(last_time) AS last FROM gateway_blocks",
    );
    return { rows: found?.n ?? 0, firstMs: found?.first ?? undefined, lastMs: found?.last ?? undefined };
  }

  async deleteSubject(subject: string): Promise<number> {
    const blocks = this.#all<StoredBlock>(
      "SELECT number FROM gateway_blocks WHERE instr(shared, ?) > 0",
      json(subject),
    );
    let deleted = 0;
    this.#deletions += 1;
    try {
      for (const { number } of blocks) deleted += await this.#transaction(() => this.#deleteFrom(number, subject));
    } finally {
      this.#deletions -= 1;
    }
    return deleted;
  }

  /** Deletes blocks whose rows have all expired, and merges small ones. */
  expire(beforeMs: number): Promise<boolean> {
    return this.#transaction(() => {
      this.#prepared(DELETE_BATCHES).run();
      return this.#prepared(DELETE_EXPIRED).run([beforeMs]).changes > 0 || (this.#deletions === 0 && this.#merge());
    });
  }

  /** The text of a subject can also occur in another column, so a block may have no row to delete. */
  #deleteFrom(number: number, subject: string): number {
    const rows = this.#rowsOf(number);
    const kept = rows.filter((row) => row[COLUMN_INDEX.subject] !== subject);
    if (kept.length < rows.length) this.#replace([number], kept);
    return rows.length - kept.length;
  }

  #merge(): boolean {
    const [found] = this.#all<{ hour: number }>(HOUR_TO_MERGE);
    if (found === undefined) return false;
    const numbers: number[] = [];
    let count = 0;
    for (const { number, rows } of this.#all<{ number: number; rows: number }>(SMALL_BLOCKS, found.hour)) {
      if (count + rows > BLOCK_ROWS) break;
      numbers.push(number);
      count += rows;
    }
    this.#replace(
      numbers,
      numbers.flatMap((number) => this.#rowsOf(number)),
    );
    return true;
  }

  #replace(numbers: readonly number[], rows: readonly RowValues[]): void {
    for (const number of numbers) this.#prepared("DELETE FROM gateway_blocks WHERE number = ?").run([number]);
    if (rows.length === 0) return;
    this.#insertBlock(groupRows(batchOf(rows)));
  }

  #insertBlock(batch: GroupedRows): void {
    const shared = batch.firstRows.map((row) => SHARED_INDEXES.map((i) => valueAt(batch, row, i)));
    const data: RowValue[][] = [];
    const requestIds = Buffer.allocUnsafe(batch.rows * HASH_BYTES);
    let first = Number.POSITIVE_INFINITY;
    let last = Number.NEGATIVE_INFINITY;
    for (let row = 0; row < batch.rows; row++) {
      const values: RowValue[] = [batch.groupOfRow[row] as number];
      for (const i of OWN_INDEXES) values.push(valueAt(batch, row, i));
      data.push(values);
      const time = valueAt(batch, row, COLUMN_INDEX.time) as number;
      first = Math.min(first, time);
      last = Math.max(last, time);
      requestIds.writeUInt32LE(hash(valueAt(batch, row, COLUMN_INDEX.request_id) as string), row * HASH_BYTES);
    }
    // The library copies bytes much faster than texts.
    this.#prepared(INSERT_BLOCK).run([hourOf(first), first, last, batch.rows, requestIds, json(shared), json(data)]);
  }

  #rowsOf(number: number): RowValues[] {
    const [block] = this.#all<StoredBlock>("SELECT shared, data FROM gateway_blocks WHERE number = ?", number);
    return block === undefined ? [] : rowsOf(block);
  }

  /** Statements must not stay open, because an open statement keeps the write-ahead log from being reset. */
  #all<Row>(statement: string, ...parameters: (RowValue | Uint8Array)[]): Row[] {
    return this.#prepared(statement).all(parameters) as Row[];
  }
}

function rowsOf({ shared, data }: StoredBlock): RowValues[] {
  const groups = parsed(shared);
  return parsed(data).map(([group, ...own]) => {
    const row: RowValue[] = COLUMNS.map(() => null);
    // Blocks of an earlier version have fewer columns.
    for (const [i, column] of OWN_INDEXES.entries()) row[column] = own[i] ?? (IS_NUMBER[column] ? null : "");
    for (const [i, column] of SHARED_INDEXES.entries())
      row[column] = (groups[group as number] as RowValue[])[i] as RowValue;
    return row;
  });
}

function json(values: unknown): Buffer {
  return Buffer.from(JSON.stringify(values));
}

function parsed(bytes: Uint8Array): RowValues[] {
  return readJson(PACKED_ROWS, bytes) as RowValues[];
}

const HASH_BYTES = 4;

/** FNV-1a. Equal hashes of different IDs only cost time. */
function hash(text: string): number {
  let bits = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) bits = Math.imul(bits ^ text.charCodeAt(i), 0x01000193);
  return bits >>> 0;
}

function hashOf(text: string): Buffer {
  const bytes = Buffer.allocUnsafe(HASH_BYTES);
  bytes.writeUInt32LE(hash(text));
  return bytes;
}

function timeOf(row: RowValues | undefined): number {
  return row?.[COLUMN_INDEX.time] as number;
}

function newestFirst(one: RowValues, other: RowValues): number {
  return (
    timeOf(other) - timeOf(one) || ((one[COLUMN_INDEX.id] as string) < (other[COLUMN_INDEX.id] as string) ? 1 : -1)
  );
}

function asObject(row: RowValues): HistoryRow {
  return Object.fromEntries(COLUMNS.map((name, i) => [name, row[i]])) as unknown as HistoryRow;
}
