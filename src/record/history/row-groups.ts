/**
 * Groups the rows of a batch that have the same hour and the same shared values. Most requests differ only in their IDs,
 * times, and amounts, so a batch has few groups.
 */
import { COLUMN_INDEX, COLUMNS, SHARED_COLUMNS } from "./history-row.ts";
import { type OpenBatch, openBatch, type RowBatch } from "./row-batch.ts";

export const HOUR_MS = 3_600_000;
const WIDTH = COLUMNS.length;
const SHARED_INDEXES = SHARED_COLUMNS.map((name) => COLUMN_INDEX[name]);

export interface GroupedRows extends OpenBatch {
  /** Contains the index of the first row of each group. */
  readonly firstRows: readonly number[];
  /** Contains the index of the group of each row. */
  readonly groupOfRow: Uint32Array;
}

export function groupRows(batch: RowBatch): GroupedRows {
  const { rows, values } = batch;
  const firstRows: number[] = [];
  const groupOfRow = new Uint32Array(rows);
  const byHash = new Map<number, number>();
  for (let row = 0; row < rows; row++) {
    const at = row * WIDTH;
    // Most rows have the values of the row before.
    const last = groupOfRow[row - 1];
    if (last !== undefined && isSame(values, (firstRows[last] as number) * WIDTH, at)) {
      groupOfRow[row] = last;
      continue;
    }
    let hash = Math.floor((values[at + COLUMN_INDEX.time] as number) / HOUR_MS);
    for (const i of SHARED_INDEXES) hash = (Math.imul(hash, 31) + (values[at + i] as number)) | 0;
    let group = byHash.get(hash);
    while (group !== undefined && !isSame(values, (firstRows[group] as number) * WIDTH, at)) {
      hash = (hash + 1) | 0;
      group = byHash.get(hash);
    }
    if (group === undefined) {
      group = firstRows.push(row) - 1;
      byHash.set(hash, group);
    }
    groupOfRow[row] = group;
  }
  return { ...openBatch(batch), firstRows, groupOfRow };
}

function isSame(values: Float64Array, one: number, other: number): boolean {
  for (const i of SHARED_INDEXES) if (!Object.is(values[one + i], values[other + i])) return false;
  const { time } = COLUMN_INDEX;
  return hourOf(values[one + time] as number) === hourOf(values[other + time] as number);
}

export function hourOf(time: number): number {
  return time - (time % HOUR_MS);
}
