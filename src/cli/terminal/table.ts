/**
 * Columns of text, as wide as their widest cell; the last one is left ragged. The first row is the head.
 */
import type { Paint, Tone } from "./paint.ts";
import { printable } from "./terminal.ts";
import { textWidth } from "./text-width.ts";

const MAX_CELL_CHARS = 60;

export type Cell = string | { readonly text: string; readonly tone: Tone | undefined };

export interface TableOptions {
  readonly maxLastChars?: number;
  readonly paint?: Paint;
  /** Widths that hold whatever comes: for rows that are printed one by one. */
  readonly minWidths?: readonly number[];
}

const PLAIN: Paint = (text) => text;

export function table(rows: readonly (readonly Cell[])[], options: TableOptions = {}): string {
  const { maxLastChars = MAX_CELL_CHARS, paint = PLAIN, minWidths = [] } = options;
  const cells = rows.map((row) =>
    row.map((one, i) => ({
      text: cellText(textOf(one), i === row.length - 1 ? maxLastChars : MAX_CELL_CHARS),
      tone: typeof one === "string" ? undefined : one.tone,
    })),
  );
  const widths = (cells[0] ?? []).map((_, column) =>
    cells.reduce((widest, row) => Math.max(widest, textWidth(row[column]?.text ?? "")), minWidths[column] ?? 0),
  );
  return cells
    .map((row) => {
      // Nothing is padded after the last cell that says something.
      const last = row.findLastIndex(({ text }) => text.trim() !== "");
      const line = row.slice(0, last + 1).map(({ text, tone }, i) => {
        const gap = i === last ? "" : " ".repeat(Math.max(0, (widths[i] ?? 0) - textWidth(text)));
        return `${paint(i === last ? text.trimEnd() : text, tone)}${gap}`;
      });
      return `${line.join("  ")}\n`;
    })
    .join("");
}

function textOf(cell: Cell): string {
  return typeof cell === "string" ? cell : cell.text;
}

function cellText(text: string, maxChars: number): string {
  const shown = printable(text).replaceAll("\n", " ");
  return shown.length <= maxChars ? shown : `${shown.slice(0, maxChars - 1)}…`;
}
