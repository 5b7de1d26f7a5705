/**
 * Defines the row of one finished request. A queued or spooled row is a line with a JSON array in the order of
 * `COLUMNS`.
 */

/** Queued and spooled rows have this order, so new columns must be appended. */
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

/** A spool may contain rows of an earlier version, which end after these columns. */
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
 * `time` is in milliseconds since the epoch. `status` and `first_byte_us` are null if they are absent. Other absent
 * values are empty strings or zeros.
 */
export type HistoryRow = {
  readonly [Name in Column]: Name extends "first_byte_us" | "status"
    ? number | null
    : Name extends NumberColumn
      ? number
      : string;
};

export type RowValue = string | number | null;

/** Contains the values of a row in the order of `COLUMNS`. Arrays are cheaper to write than objects. */
export type RowValues = readonly RowValue[];

/** Returns undefined for a line that is not a row, for example a truncated last line of a spool file. */
export function parseRow(line: string): RowValues | undefined {
  let values: unknown;
  try {
    values = JSON.parse(line);
  } catch {
    return undefined;
  }
  if (!Array.isArray(values) || values.length < FIRST_COLUMNS || typeof values[0] !== "string") return undefined;
  while (values.length < COLUMNS.length) values.push("");
  return values as RowValue[];
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

export function parseRows(text: string): RowValues[] {
  const rows: RowValues[] = [];
  for (const line of text.split("\n")) {
    const row = line === "" ? undefined : parseRow(line);
    if (row !== undefined) rows.push(row);
  }
  return rows;
}
