/**
 * Defines the row of one finished request, its text in the spool, and the columns of the hourly usage.
 */

import { readLines } from "../../base/line-splitter.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson, tryReadJson } from "../../json/read-json.ts";

/**
 * Spooled rows have this order, so new columns must be appended. An `own` text differs in every row, and a `client` text
 * comes from the client or can quote it.
 */
const KINDS = {
  id: "own text",
  time: "number",
  duration_us: "number",
  first_byte_us: "number or null",
  listener: "text",
  route: "text",
  backend: "text",
  method: "text",
  host: "client text",
  path: "client text",
  request_id: "own client text",
  client: "text",
  subject: "client text",
  key: "client text",
  team: "client text",
  mcp_method: "text",
  server: "text",
  tool: "client text",
  session: "text",
  mcp_outcome: "text",
  model: "client text",
  provider: "text",
  status: "number or null",
  response_end: "text",
  result: "text",
  reason: "text",
  message: "client text",
  input_tokens: "number",
  output_tokens: "number",
  cached_tokens: "number",
  cache_write_tokens: "number",
  reasoning_tokens: "number",
  cost_nano: "number",
  response_bytes: "number",
  policies: "text",
  trace_id: "own text",
  /** Contains a JSON array of accounts and amounts, or an empty string. */
  charges: "own text",
  /** Contains a JSON object with fields of a request record, or an empty string. */
  details: "own client text",
} as const;

export type Column = keyof typeof KINDS;

export const COLUMNS = Object.keys(KINDS) as readonly Column[];

export const COLUMN_INDEX = Object.fromEntries(COLUMNS.map((name, i) => [name, i])) as Readonly<Record<Column, number>>;

const columnsWith = (kind: RegExp): readonly boolean[] => Object.values(KINDS).map((one) => kind.test(one));

/** These lists contain true at the indexes of such columns. */
export const IS_NUMBER = columnsWith(/^number/);
export const IS_NULLABLE = columnsWith(/null$/);
export const IS_REDACTED = columnsWith(/client/);
export const IS_OWN_TEXT = columnsWith(/^own/);

/** The values of these columns differ in every row. */
export const OWN_COLUMNS = COLUMNS.filter((name, i) => IS_OWN_TEXT[i] || (IS_NUMBER[i] && name !== "status"));

/** These columns have the same values in many rows. */
export const SHARED_COLUMNS = COLUMNS.filter((name) => !OWN_COLUMNS.includes(name));

/**
 * `time` is in milliseconds since the epoch. `status` and `first_byte_us` are null if they are absent. Other absent
 * values are empty strings or zeros.
 */
export type HistoryRow = {
  readonly [Name in Column]: (typeof KINDS)[Name] extends "number or null"
    ? number | null
    : (typeof KINDS)[Name] extends "number"
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
  if (charges === undefined) return "";
  let text = "";
  for (const { account, amount } of charges) text += `${text === "" ? "[" : ","}[${JSON.stringify(account)},${amount}]`;
  return text === "" ? "[]" : `${text}]`;
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
/** The columns of version 1. A spool may contain its rows. */
export const FIRST_COLUMNS = COLUMNS.slice(0, COLUMN_INDEX.trace_id + 1);

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
  // A value and its separator have at least two characters. Errors of shorter lines take most of the time of a damaged file.
  if (line.length < 2 * FIRST_COLUMNS.length) return undefined;
  const values = tryReadJson(ROW, line);
  if (!Array.isArray(values) || values.length < FIRST_COLUMNS.length) return undefined;
  while (values.length < COLUMNS.length) values.push("");
  const isRow = COLUMNS.every((_, i) =>
    IS_NUMBER[i]
      ? typeof values[i] === "number" || (values[i] === null && IS_NULLABLE[i])
      : typeof values[i] === "string",
  );
  return isRow ? (values as RowValue[]) : undefined;
}

export function parseCharges(text: string): Charge[] {
  if (text === "") return [];
  return (readJson(CHARGES, text) as [string, number][]).map(([account, amount]) => ({ account, amount }));
}
