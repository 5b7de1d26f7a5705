/**
 * Encodes rows into batches that are cheap to send to another thread. The texts of a batch are numbered, so that a text
 * that many rows have in common is redacted and sent once. Rows with the same hour and shared values form a group.
 */
import {
  COLUMN_INDEX,
  COLUMNS,
  IS_NUMBER,
  IS_OWN_TEXT,
  IS_REDACTED,
  type RowValue,
  type RowValues,
  SHARED_COLUMNS,
} from "./history-row.ts";

export interface RowBatch {
  readonly rows: number;
  /**
   * Contains the values of each row in the order of `COLUMNS`. The value of a text column is the number of a line in
   * `texts`. NaN is null. The memory is shared and no longer changes.
   */
  readonly values: Float64Array;
  /** Contains one text per line. The first line is empty. */
  readonly texts: string;
}

const FIRST_ROWS = 64;
const WIDTH = COLUMNS.length;

export class RowBatchBuilder {
  readonly #redact: (text: string) => string;
  #rows = 0;
  #values = sharedValues(FIRST_ROWS);
  #texts = [""];
  /** Contain the numbers of texts as they were added. */
  readonly #plain = new Map<string, number>();
  readonly #redacted = new Map<string, number>();
  /** Contain the texts of the last row and their numbers, because a row mostly has the same values as the one before. */
  #lastTexts: string[] = [];
  #lastNumbers: number[] = [];

  /** `redact` is called for `client` texts, once per batch for a text that several rows have in common. */
  constructor(redact: (text: string) => string) {
    this.#redact = redact;
  }

  get rows(): number {
    return this.#rows;
  }

  add(row: RowValues): void {
    let at = this.#rows * WIDTH;
    if (at === this.#values.length) this.#grow();
    const values = this.#values;
    for (let i = 0; i < WIDTH; i++) {
      const value = row[i] as RowValue;
      if (typeof value === "string") values[at++] = value === "" ? 0 : this.#numberOf(value, i);
      else values[at++] = value ?? Number.NaN;
    }
    this.#rows += 1;
  }

  /** Returns the added rows, and starts with an empty batch. */
  take(): RowBatch {
    const values = this.#values.subarray(0, this.#rows * WIDTH);
    const batch = { rows: this.#rows, values, texts: this.#texts.join("\n") };
    this.#values = sharedValues(Math.max(FIRST_ROWS, this.#rows));
    this.#rows = 0;
    this.#texts = [""];
    this.#plain.clear();
    this.#redacted.clear();
    this.#lastTexts = [];
    return batch;
  }

  #numberOf(text: string, column: number): number {
    // Looking for an earlier copy of such a text would only cost time.
    if (IS_OWN_TEXT[column]) return this.#append(text, column);
    if (this.#lastTexts[column] === text) return this.#lastNumbers[column] as number;
    const numbers = IS_REDACTED[column] ? this.#redacted : this.#plain;
    let number = numbers.get(text);
    if (number === undefined) {
      number = this.#append(text, column);
      numbers.set(text, number);
    }
    this.#lastTexts[column] = text;
    this.#lastNumbers[column] = number;
    return number;
  }

  #append(text: string, column: number): number {
    return this.#texts.push(oneLine(IS_REDACTED[column] ? this.#redact(text) : text)) - 1;
  }

  #grow(): void {
    const larger = sharedValues(this.#rows * 2);
    larger.set(this.#values);
    this.#values = larger;
  }
}

/** Another thread can read shared memory without a copy. */
function sharedValues(rows: number): Float64Array {
  return new Float64Array(new SharedArrayBuffer(rows * WIDTH * Float64Array.BYTES_PER_ELEMENT));
}

/** The rows must be redacted already. */
export function batchOf(rows: readonly RowValues[]): RowBatch {
  const builder = new RowBatchBuilder((text) => text);
  for (const row of rows) builder.add(row);
  return builder.take();
}

/** A batch whose texts have been separated. */
interface OpenBatch extends Omit<RowBatch, "texts"> {
  readonly texts: readonly string[];
}

function openBatch({ rows, values, texts }: RowBatch): OpenBatch {
  return { rows, values, texts: texts.split("\n") };
}

export function valueAt({ values, texts }: OpenBatch, row: number, column: number): RowValue {
  const value = values[row * WIDTH + column] as number;
  if (!IS_NUMBER[column]) return texts[value] as string;
  return Number.isNaN(value) ? null : value;
}

export function batchRows(batch: RowBatch): RowValues[] {
  const open = openBatch(batch);
  return Array.from({ length: batch.rows }, (_, row) => COLUMNS.map((_, i) => valueAt(open, row, i)));
}

/** Longer names, such as those of users and models, are cut off. */
export const MAX_NAME_CHARS = 200;

export function shortName(text: string): string {
  return text.length > MAX_NAME_CHARS ? text.slice(0, MAX_NAME_CHARS) : text;
}

/** Newlines separate texts, and PostgreSQL cannot store NUL characters. */
export function oneLine(text: string): string {
  return text.includes("\n") || text.includes("\0") ? text.replace(/[\n\0]+/g, " ") : text;
}

export const HOUR_MS = 3_600_000;
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
