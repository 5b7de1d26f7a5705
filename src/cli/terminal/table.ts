/**
 * Columns of text, as wide as their widest cell; the last one is left ragged.
 */
import { printable } from "./terminal.ts";
import { textWidth } from "./text-width.ts";

const MAX_CELL_CHARS = 60;

export function table(rows: readonly (readonly string[])[], maxLastChars = MAX_CELL_CHARS): string {
  const cells = rows.map((row) =>
    row.map((text, i) => cell(text, i === row.length - 1 ? maxLastChars : MAX_CELL_CHARS)),
  );
  const widths = (cells[0] ?? []).map((_, column) => Math.max(...cells.map((row) => textWidth(row[column] ?? ""))));
  return cells
    .map(
      (row) =>
        `${row
          .map((text, i) => padded(text, widths[i] ?? 0))
          .join("  ")
          .trimEnd()}\n`,
    )
    .join("");
}

function padded(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - textWidth(text)));
}

function cell(text: string, maxChars: number): string {
  const shown = printable(text).replaceAll("\n", " ");
  return shown.length <= maxChars ? shown : `${shown.slice(0, maxChars - 1)}…`;
}
