/**
 * Columns of text, as wide as their widest cell; the last one is left ragged.
 */
import { printable } from "./terminal.ts";

const MAX_CELL_CHARS = 60;

export function table(rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map(cell));
  const widths = (cells[0] ?? []).map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  return cells
    .map(
      (row) =>
        `${row
          .map((text, i) => text.padEnd(widths[i] ?? 0))
          .join("  ")
          .trimEnd()}\n`,
    )
    .join("");
}

function cell(text: string): string {
  const shown = printable(text).replaceAll("\n", " ");
  return shown.length <= MAX_CELL_CHARS ? shown : `${shown.slice(0, MAX_CELL_CHARS - 1)}…`;
}
