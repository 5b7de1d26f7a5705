/**
 * Stores the history in a SQLite file. The library runs SQLite as WebAssembly on the file system of Node (ADR 45). Its
 * calls are synchronous, so this engine runs in a worker thread. The library has no file locks of the operating system,
 * so a lock of the folder keeps other gateways out.
 */
import { chmodSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import sqlite, { type Database, type Statement } from "node-sqlite3-wasm";
import type { Clock } from "../../base/clock.ts";
import { takeFolderLock } from "../../store/folder-lock.ts";
import { type HistoryEngine, oneAtATime, type ResultRow, type RowSql } from "./engine.ts";
import type { RowValue } from "./history-row.ts";
import { SqliteRows } from "./sqlite-rows.ts";

const FILE = "history.db";
/** Limits the cache of prepared statements. */
const KEPT_STATEMENTS = 50;
const RECLAIMED_PAGES = 2_000;

export async function openSqliteEngine(folder: string, clock: Clock): Promise<HistoryEngine> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const lock = takeFolderLock(folder, clock);
  try {
    const database = openDatabase(join(folder, FILE));
    return createEngine(database, lock.release);
  } catch (error) {
    lock.release();
    throw error;
  }
}

function openDatabase(file: string): Database {
  // The library's own lock is a folder, which remains after the process was killed.
  rmSync(`${file}.lock`, { recursive: true, force: true });
  const database = new sqlite.Database(file);
  try {
    // Exclusive locking comes first, because a write-ahead log without it needs shared memory.
    database.exec("PRAGMA locking_mode = EXCLUSIVE");
    database.exec("PRAGMA auto_vacuum = INCREMENTAL");
    database.all("PRAGMA journal_mode = WAL");
    // After a power failure, the last transactions can be missing.
    database.exec("PRAGMA synchronous = NORMAL");
    // Rows are appended, so few pages are used again. The unit is KiB.
    database.exec("PRAGMA cache_size = -4096");
    chmodSync(file, 0o600);
  } catch (error) {
    database.close();
    throw error;
  }
  return database;
}

function createEngine(database: Database, release: () => void): HistoryEngine {
  const statements = new Map<string, Statement>();
  const inOrder = oneAtATime();

  function prepared(statement: string): Statement {
    const known = statements.get(statement);
    if (known !== undefined) return known;
    const [oldest] = statements;
    if (statements.size >= KEPT_STATEMENTS && oldest !== undefined) {
      statements.delete(oldest[0]);
      oldest[1].finalize();
    }
    const made = database.prepare(statement.replace(/\$(?=\d)/g, "?"));
    statements.set(statement, made);
    return made;
  }

  const rows = new SqliteRows(prepared, (work) => inOrder(() => transact(async () => work())));
  const sql: RowSql = {
    all: async (statement, parameters = []) => prepared(statement).all(parameters as RowValue[]) as ResultRow[],
    insertRows: async (batch) => rows.insert(batch),
  };

  async function transact<Result>(work: (sql: RowSql) => Promise<Result>): Promise<Result> {
    database.exec("BEGIN IMMEDIATE");
    try {
      const result = await work(sql);
      database.exec("COMMIT");
      return result;
    } catch (error) {
      if (database.inTransaction) database.exec("ROLLBACK");
      throw error;
    }
  }

  return {
    kind: "sqlite",
    reader: sql,
    rows,
    transaction: (work) => inOrder(() => transact(work)),
    async reclaim() {
      database.exec(`PRAGMA incremental_vacuum(${RECLAIMED_PAGES})`);
    },
    async close() {
      await inOrder(async () => undefined);
      for (const statement of statements.values()) statement.finalize();
      statements.clear();
      database.close();
      release();
    },
  };
}
