/**
 * The row of one finished request, as it is queued, spooled, and stored. A row contains no bodies and no credentials.
 * The line format is a JSON array in the order of `COLUMNS`, so that a batch of lines can be spooled without parsing.
 */

/** The order is the wire format of queued and spooled rows. New columns are appended. */
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
  /** A JSON array of accounts and amounts, or an empty string. */
  "charges",
] as const;

/** A spool can have rows of an earlier version, which lack the columns after these. */
const FIRST_COLUMNS = COLUMNS.indexOf("trace_id") + 1;

export type Column = (typeof COLUMNS)[number];

type NumberColumn =
  | "time"
  | "duration_us"
  | "first_byte_us"
  | "status"
  | "input_tokens"
  | "output_tokens"
  | "cached_tokens"
  | "cache_write_tokens"
  | "reasoning_tokens"
  | "cost_nano"
  | "response_bytes";

/**
 * `time` is in milliseconds since the epoch. A request without a status or a first byte has null there. Other absent
 * values are empty strings and zeros.
 */
export type HistoryRow = {
  readonly [Name in Column]: Name extends "first_byte_us" | "status"
    ? number | null
    : Name extends NumberColumn
      ? number
      : string;
};

export type RowValue = string | number | null;

export function rowLine(row: HistoryRow): string {
  return JSON.stringify(COLUMNS.map((name) => row[name]));
}

/**
 * Returns undefined for a line that is not a row, for example the last line of a spool file after the process was
 * killed.
 */
export function parseRow(line: string): HistoryRow | undefined {
  let values: unknown;
  try {
    values = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (!Array.isArray(values) || values.length < FIRST_COLUMNS || typeof values[0] !== "string") return undefined;
  return Object.fromEntries(
    COLUMNS.map((name, i) => [name, (values[i] ?? (i < FIRST_COLUMNS ? null : "")) as RowValue]),
  ) as unknown as HistoryRow;
}

export interface Charge {
  readonly account: string;
  readonly amount: number;
}

export function chargesText(charges: readonly Charge[] | undefined): string {
  return charges === undefined ? "" : JSON.stringify(charges.map(({ account, amount }) => [account, amount]));
}

export function parseCharges(text: string): Charge[] {
  if (text === "") return [];
  return (JSON.parse(text) as [string, number][]).map(([account, amount]) => ({ account, amount }));
}

export function parseRows(text: string): HistoryRow[] {
  return text.split("\n").flatMap((line) => (line === "" ? [] : (parseRow(line) ?? [])));
}
