/**
 * Defines the row of one finished request, its text in the spool, and the columns of the hourly usage.
 */

import { readLines } from "../../base/line-splitter.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson, tryReadJson } from "../../json/read-json.ts";

/** Spooled rows have this order, so new columns must be appended. */
export const COLUMNS = [
  "id",
  "time",
  "duration_us",
  "first_byte_us",
  "listener",
  "route",
  "backend",
  "method",
  "host",
  "path",
  "request_id",
  "client",
  "subject",
  "key",
  "team",
  "mcp_method",
  "server",
  "tool",
  "session",
  "mcp_outcome",
  "model",
  "provider",
  "status",
  "response_end",
  "result",
  "reason",
  "message",
  "input_tokens",
  "output_tokens",
  "cached_tokens",
  "cache_write_tokens",
  "reasoning_tokens",
  "cost_nano",
  "response_bytes",
  "policies",
  "trace_id",
  /** Contains a JSON array of accounts and amounts, or an empty string. */
  "charges",
] as const;

export const COLUMN_INDEX = Object.fromEntries(COLUMNS.map((name, i) => [name, i])) as Readonly<
  Record<(typeof COLUMNS)[number], number>
>;

export type Column = (typeof COLUMNS)[number];

const NUMBER_COLUMNS = [
  "time",
  "duration_us",
  "first_byte_us",
  "status",
  "input_tokens",
  "output_tokens",
  "cached_tokens",
  "cache_write_tokens",
  "reasoning_tokens",
  "cost_nano",
  "response_bytes",
] as const satisfies readonly Column[];
type NumberColumn = (typeof NUMBER_COLUMNS)[number];
export const NULLABLE = ["first_byte_us", "status"] as const satisfies readonly Column[];

/** Contains true at the indexes of columns with numbers. */
export const IS_NUMBER: readonly boolean[] = COLUMNS.map((name) => NUMBER_COLUMNS.some((known) => known === name));

/** The texts of these columns differ in every row. */
export const OWN_TEXT_COLUMNS: readonly Column[] = ["id", "request_id", "trace_id", "charges"];

/** The values of these columns differ in every row. */
export const OWN_COLUMNS: readonly Column[] = COLUMNS.filter(
  (name, i) => OWN_TEXT_COLUMNS.includes(name) || (IS_NUMBER[i] && name !== "status"),
);

/** These columns have the same values in many rows. */
export const SHARED_COLUMNS: readonly Column[] = COLUMNS.filter((name) => !OWN_COLUMNS.includes(name));

/**
 * `time` is in milliseconds since the epoch. `status` and `first_byte_us` are null if they are absent. Other absent
 * values are empty strings or zeros.
 */
export type HistoryRow = {
  readonly [Name in Column]: Name extends (typeof NULLABLE)[number]
    ? number | null
    : Name extends NumberColumn
      ? number
      : string;
};

export type RowValue = string | number | null;

/** Contains the values of a row in the order of `COLUMNS`. Arrays are cheaper to write than objects. */
export type RowValues = readonly RowValue[];

export interface Charge {
  readonly account: string;
  readonly amount: number;
}

/** PostgreSQL cannot store NUL characters, which the key of a budget can contain. */
export function storedAccount(account: string): string {
  return account.replaceAll("\0", " ");
}

export function chargesText(charges: readonly Charge[] | undefined): string {
  return charges === undefined ? "" : JSON.stringify(charges.map(({ account, amount }) => [account, amount]));
}

/** Absent dimensions are empty strings, because NULL values would not be unique in a key. */
export const DIMENSIONS = ["team", "key", "user_name", "route", "model", "provider", "server", "tool"] as const;

/** These columns of `gateway_usage` are sums over the requests of an hour. */
export const SUMS = [
  "requests",
  "ok",
  "rejected",
  "failed",
  "aborted",
  "input_tokens",
  "output_tokens",
  "cached_tokens",
  "cache_write_tokens",
  "reasoning_tokens",
  "cost_nano",
  "duration_us",
  "response_bytes",
] as const;

const SPOOL = peerInput("file/history-spool");
const ROW = peerInput("history/row");
const CHARGES = peerInput("history/charges");
/** A spool may contain rows of an earlier version, which end after these columns. */
const FIRST_COLUMNS = COLUMNS.indexOf("trace_id") + 1;

/** Returns one line per row. */
export function rowLines(rows: readonly RowValues[]): string {
  return rows.map((row) => JSON.stringify(row)).join("\n");
}

export function parseRows(text: string): RowValues[] {
  const rows: RowValues[] = [];
  if (text.length > SPOOL.maxBytes) return rows;
  for (const line of readLines(SPOOL, text)) {
    const row = line === "" ? undefined : parseRow(line);
    if (row !== undefined) rows.push(row);
  }
  return rows;
}

/** Returns undefined for a line that is not a row, for example a truncated last line of a spool file. */
export function parseRow(line: string): RowValues | undefined {
  const values = tryReadJson(ROW, line);
  if (!Array.isArray(values) || values.length < FIRST_COLUMNS) return undefined;
  while (values.length < COLUMNS.length) values.push("");
  const isRow = COLUMNS.every((name, i) =>
    IS_NUMBER[i]
      ? typeof values[i] === "number" || (values[i] === null && NULLABLE.some((nullable) => nullable === name))
      : typeof values[i] === "string",
  );
  return isRow ? (values as RowValue[]) : undefined;
}

export function parseCharges(text: string): Charge[] {
  if (text === "") return [];
  return (readJson(CHARGES, text) as [string, number][]).map(([account, amount]) => ({ account, amount }));
}
