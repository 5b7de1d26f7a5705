/**
 * Implements the thread that owns the history database. It receives batches of rows and questions from the main thread,
 * so that the database and the spool do not delay requests.
 */
import { join } from "node:path";
import { parentPort, workerData } from "node:worker_threads";
import { systemClock } from "../../base/clock.ts";
import { removeOwnLock } from "../../store/folder-lock.ts";
import type { UsageReport } from "../trace/traffic-numbers.ts";
import { type HistoryEngine, NewerSchema } from "./engine.ts";
import type { Charge, HistoryRow } from "./history-row.ts";
import { migrate } from "./migrations.ts";
import { deleteSubject, type Retention, readSpending, readUsage, type UsageQuery } from "./queries.ts";
import type { RowBatch } from "./row-batch.ts";
import { Spool } from "./spool.ts";
import { HistoryWriter, type WriterCounts, type WriterOptions } from "./writer.ts";

export interface HistoryThreadData {
  /** The folder contains the SQLite database and the spool. The path is absolute. */
  readonly folder: string;
  /** Contains the URL of a PostgreSQL database. If undefined, SQLite is used. */
  readonly postgres: string | undefined;
  readonly retention: Retention;
  readonly maxSpoolBytes: number;
  /** True if the thread replaces a thread that died and may have left its lock. */
  readonly isReplacement: boolean;
}

export type HistoryQuestion =
  | { readonly kind: "usage"; readonly query: UsageQuery }
  | { readonly kind: "before"; readonly beforeMs: number; readonly limit: number }
  | { readonly kind: "id"; readonly id: string }
  | { readonly kind: "stored" }
  | { readonly kind: "spending" }
  | { readonly kind: "delete"; readonly subject: string };

export interface HistoryAnswers {
  readonly usage: UsageReport;
  readonly before: readonly HistoryRow[];
  readonly id: readonly HistoryRow[];
  readonly stored: { readonly rows: number; readonly oldest: string | null; readonly newest: string | null };
  readonly spending: readonly Charge[];
  readonly delete: { readonly deleted: number };
}

export type ToHistoryThread =
  | { readonly kind: "rows"; readonly batch: RowBatch }
  | { readonly kind: "ask"; readonly id: number; readonly question: HistoryQuestion }
  | { readonly kind: "close" };

export interface HistoryThreadState {
  readonly counts: Readonly<WriterCounts>;
  readonly spoolBytes: number;
  /** Undefined while the database can be used. */
  readonly unavailableReason: string | undefined;
}

export type FromHistoryThread =
  /** Sent once, after the first attempt to connect. `refusal` is set if the gateway must not use the database. */
  | { readonly kind: "started"; readonly refusal?: string; readonly state: HistoryThreadState }
  /** Sent when a batch is stored, spooled, or dropped. */
  | { readonly kind: "accepted"; readonly state: HistoryThreadState }
  | { readonly kind: "state"; readonly state: HistoryThreadState }
  | { readonly kind: "answer"; readonly id: number; readonly answer: unknown }
  | { readonly kind: "failed"; readonly id: number; readonly message: string }
  | {
      readonly kind: "log";
      readonly level: "info" | "warn" | "error";
      readonly message: string;
      readonly fields: Readonly<Record<string, string | number>>;
    }
  | { readonly kind: "closed"; readonly state: HistoryThreadState };

const STATE_EVERY_MS = 1_000;
/** Clients can choose request IDs, so an ID can occur many times. */
const ROWS_OF_ONE_ID = 20;

if (parentPort !== null) run(workerData as HistoryThreadData, (message) => parentPort?.postMessage(message));

function run(data: HistoryThreadData, send: (message: FromHistoryThread) => void): void {
  const counts = { written: 0, spooled: 0, dropped: 0 };
  const log: WriterOptions["log"] = (level, message, fields) => send({ kind: "log", level, message, fields });
  const { isReplacement } = data;
  // The locks of the thread that died name this process, so they would count as held.
  if (isReplacement) removeOwnLock(data.folder);
  const spool = new Spool({
    folder: join(data.folder, "spool"),
    maxBytes: data.maxSpoolBytes,
    clock: systemClock,
    isReplacement,
    dropped(rows) {
      counts.dropped += rows;
      log("error", "history rows dropped", { rows, reason: "the spool is full" });
    },
  });
  const { retention } = data;
  const open: WriterOptions["open"] = (lost) => openEngine(data, lost);
  const writer = new HistoryWriter({ clock: systemClock, spool, retention, counts, open, log });
  const state = (): HistoryThreadState => {
    const { unavailableReason } = writer;
    return { counts: { ...counts }, spoolBytes: spool.bytes, unavailableReason };
  };
  let accepting: Promise<void> = Promise.resolve();

  async function answer(question: HistoryQuestion): Promise<HistoryAnswers[keyof HistoryAnswers]> {
    // Rows that have arrived before the question are written first, if possible.
    await accepting;
    if (question.kind === "delete") await writer.settle();
    else await writer.flush();
    return answerQuestion(writer.engine(), question);
  }

  parentPort?.on("message", (message: ToHistoryThread) => {
    if (message.kind === "rows") {
      accepting = accepting.then(() => writer.accept(message.batch));
      void accepting.then(() => send({ kind: "accepted", state: state() }));
    } else if (message.kind === "ask") {
      const { id } = message;
      void answer(message.question).then(
        (found) => send({ kind: "answer", id, answer: found }),
        (error: Error) => send({ kind: "failed", id, message: error.message }),
      );
    } else {
      void accepting
        .then(() => writer.close())
        .catch((error: Error) => log("error", "could not close the history database", { reason: error.message }))
        .then(() => send({ kind: "closed", state: state() }));
    }
  });
  systemClock.every(STATE_EVERY_MS, () => send({ kind: "state", state: state() }));
  void writer.start().then(
    () => send({ kind: "started", state: state() }),
    (error: Error) => send({ kind: "started", refusal: error.message, state: state() }),
  );
}

async function openEngine(data: HistoryThreadData, lost: (error: Error) => void): Promise<HistoryEngine> {
  const engine = await openDatabase(data, lost);
  try {
    await migrate(engine);
    return engine;
  } catch (error) {
    await engine.close();
    throw error instanceof NewerSchema ? error : new Error(`could not prepare the tables: ${(error as Error).message}`);
  }
}

async function openDatabase({ folder, postgres }: HistoryThreadData, lost: (error: Error) => void) {
  // Only the library of the configured database is loaded.
  if (postgres === undefined) return (await import("./sqlite-engine.ts")).openSqliteEngine(folder, systemClock);
  return (await import("./postgres-engine.ts")).openPostgresEngine(postgres, lost);
}

async function answerQuestion(
  engine: HistoryEngine,
  question: HistoryQuestion,
): Promise<HistoryAnswers[keyof HistoryAnswers]> {
  switch (question.kind) {
    case "usage":
      return readUsage(engine.reader, question.query);
    case "before":
      return engine.rows.before(question.beforeMs, question.limit);
    case "id":
      return engine.rows.withRequestId(question.id, ROWS_OF_ONE_ID);
    case "stored": {
      const { rows, firstMs, lastMs } = await engine.rows.stored();
      return { rows, oldest: timeText(firstMs), newest: timeText(lastMs) };
    }
    case "spending":
      return readSpending(engine.reader);
    case "delete":
      return { deleted: await deleteSubject(engine, question.subject) };
  }
}

function timeText(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}
