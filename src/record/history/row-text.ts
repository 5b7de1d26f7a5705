/**
 * Writes spooled rows as text, and reads the text of rows and charges. A spooled row is a line with a JSON array in the order of `COLUMNS`.
 */
import { readLines } from "../../base/line-splitter.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson, tryReadJson } from "../../json/read-json.ts";
import { type Charge, COLUMNS, IS_NUMBER, NULLABLE, type RowValue, type RowValues } from "./history-row.ts";

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
