/**
 * Rows of the history with only the fields that a test needs.
 */
import type { HistoryEngine } from "../../../src/record/history/engine.ts";
import { COLUMNS, type HistoryRow, type RowValues } from "../../../src/record/history/history-row.ts";
import { batchOf } from "../../../src/record/history/row-batch.ts";
import { writeBatch } from "../../../src/record/history/writer.ts";

const EMPTY = Object.fromEntries(
  COLUMNS.map((name) => [name, /tokens$|_nano$|_bytes$|_us$|^time$/.test(name) ? 0 : ""]),
) as unknown as HistoryRow;

export function aRow(fields: Partial<HistoryRow> & Pick<HistoryRow, "id">): RowValues {
  const common = { status: 200, result: "ok", response_end: "complete", method: "GET", path: "/" };
  const row: HistoryRow = { ...EMPTY, ...common, ...fields };
  return COLUMNS.map((name) => row[name]);
}

export function writeRows(engine: HistoryEngine, rows: readonly RowValues[]): Promise<number> {
  return writeBatch(engine, batchOf(rows));
}
