/**
 * Defines the messages between the main thread and the history thread.
 */
import type { Charge, HistoryRow } from "./history-row.ts";
import type { Retention } from "./request-query.ts";
import type { RowBatch } from "./row-batch.ts";
import type { UsageQuery, UsageReport } from "./usage-query.ts";
import type { WriterCounts } from "./writer.ts";

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
