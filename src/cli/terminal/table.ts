/**
 * Formats tables. On a narrow terminal, cells wrap, except in columns of ids, and a long last cell moves
 * below its row.
 */
import { createRequire } from "node:module";
import { onDemand } from "../../base/on-demand.ts";
import { type Paint, printable, type Tone } from "./terminal.ts";

const require = createRequire(import.meta.url);
const library = onDemand<typeof import("./text-width.ts")>(() => require("./text-width.js"));

const MAX_CELL_CHARS = 200;
export const SUMMARY_CHARS = 60;
export const MESSAGE_CHARS = 10_000;
const GAP = "  ";
const MIN_COLUMNS = 10;
/** A last cell that would be narrower moves below its row, unless it is short. */
const MIN_LAST_COLUMNS = 30;
const SHORT_COLUMNS = 20;
const INDENT = "    ";
/** Columns with these headers contain ids to copy. */
const ID_HEADERS = ["ID", "EXAMPLE"];

export type Cell = string | { readonly text: string; readonly tone: Tone | undefined };

export interface TableOptions {
  readonly maxLastChars?: number;
  readonly paint?: Paint;
  readonly minWidths?: readonly number[];
  /** With `minWidths`: the columns that never wrap. */
  readonly idColumns?: readonly number[];
  /** A last cell that would be narrower moves below its row. */
  readonly minLastColumns?: number;
}

interface ShownCell {
  readonly text: string;
  readonly tone: Tone | undefined;
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
  const { columns } = paint;
  if (columns === undefined || total(widths) <= columns) return cells.map((row) => line(row, widths, paint)).join("");
  if (minWidths.length === 0) {
    const [shown, shownWidths] = withoutEmptyColumns(cells, widths);
    const idColumns = (shown[0] ?? []).flatMap(({ text }, i) => (ID_HEADERS.includes(text) ? [i] : []));
    return narrowTable(shown, shownWidths, columns, paint, { idColumns });
  }
  return narrowTable(cells, fixedWidths(widths, options, columns), columns, paint, options);
}

function fixedWidths(
  widths: readonly number[],
  { minWidths = [], minLastColumns = MIN_LAST_COLUMNS }: TableOptions,
  columns: number,
): number[] {
  const others = widths.slice(0, -1).map((width, column) => minWidths[column] ?? width);
  return [...others, Math.max(minLastColumns, columns - total(others) - GAP.length)];
}

function line(row: readonly ShownCell[], widths: readonly number[], paint: Paint): string {
  const last = row.findLastIndex(({ text }) => text.trim() !== "");
  const shown = row.slice(0, last + 1).map(({ text, tone }, i) => {
    const gap = i === last ? "" : " ".repeat(Math.max(0, (widths[i] ?? 0) - textWidth(text)));
    return `${paint(i === last ? text.trimEnd() : text, tone)}${gap}`;
  });
  return `${shown.join(GAP)}\n`;
}

function narrowTable(
  cells: readonly (readonly ShownCell[])[],
  widths: readonly number[],
  columns: number,
  paint: Paint,
  { idColumns = [], minLastColumns = MIN_LAST_COLUMNS }: TableOptions,
): string {
  const lastColumn = widths.length - 1;
  const others = total(widths.slice(0, lastColumn)) + GAP.length;
  const isShort = (widths[lastColumn] ?? 0) <= SHORT_COLUMNS;
  const isBelow = !isShort && columns - others < minLastColumns && lastColumn > 0 && total(widths) > columns;
  const fitted = fit(isBelow ? widths.slice(0, lastColumn) : widths, columns, idColumns);
  return cells
    .map((row, i) => {
      const pieces = fitted.map((width, column) => wrapWords(row[column]?.text ?? "", width));
      const height = Math.max(...pieces.map((one) => one.length));
      const text = Array.from({ length: height }, (_unused, at) =>
        line(
          pieces.map((one, column) => ({ text: one[at] ?? "", tone: row[column]?.tone })),
          fitted,
          paint,
        ),
      ).join("");
      const last = row[lastColumn];
      if (!isBelow || last === undefined || last.text.trim() === "" || (i === 0 && cells.length > 1)) return text;
      const below = wrapWords(last.text, columns - INDENT.length);
      return `${text}${below.map((one) => `${INDENT}${paint(one, last.tone)}\n`).join("")}`;
    })
    .join("");
}

/** Narrows the widest columns, but never `idColumns`. */
function fit(widths: readonly number[], columns: number, idColumns: readonly number[]): number[] {
  const fitted = [...widths];
  while (total(fitted) > columns) {
    const widest = Math.max(...fitted.filter((_, i) => !idColumns.includes(i)));
    if (widest <= MIN_COLUMNS) break;
    fitted[fitted.findIndex((width, i) => width === widest && !idColumns.includes(i))] = widest - 1;
  }
  return fitted;
}

/** Drops columns that are empty or contain a dash in every row after the header. */
function withoutEmptyColumns(
  cells: readonly (readonly ShownCell[])[],
  widths: readonly number[],
): [cells: readonly (readonly ShownCell[])[], widths: readonly number[]] {
  const hasContent = widths.map(
    (_, i) => cells.length < 2 || cells.slice(1).some((row) => !/^-?$/.test(row[i]?.text ?? "")),
  );
  return [cells.map((row) => row.filter((_, i) => hasContent[i])), widths.filter((_, i) => hasContent[i])];
}

function total(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, 0) + GAP.length * Math.max(0, widths.length - 1);
}

function textOf(cell: Cell): string {
  return typeof cell === "string" ? cell : cell.text;
}

function cellText(text: string, maxChars: number): string {
  const shown = printable(text).replaceAll("\n", " ");
  return shown.length <= maxChars ? shown : `${shown.slice(0, maxChars - 1)}…`;
}

const PART_END = /[-_./:,;=&?|]$/;
const PARTS_END = /[-_./:,;=&?|][^-_./:,;=&?|]*$/;
/** Latin letters and the symbols of gwctl itself. Loading the library for other texts takes 70 ms of CPU time. */
const NARROW = /^[ -~\u00a1-\u00ac\u00ae-\u02ff\u2013\u2026\u2192\u2713\u2717]*$/;

/** The terminal columns of a text. East Asian characters and emoji take two, and combining marks none. */
export function textWidth(text: string): number {
  return NARROW.test(text) ? text.length : library().stringWidth(text);
}

export function breakLines(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  let used = 0;
  for (const character of NARROW.test(text) ? text : library().graphemesOf(text)) {
    const columns = textWidth(character);
    if (used + columns > width && line !== "") {
      lines.push(line);
      line = "";
      used = 0;
    }
    line += character;
    used += columns;
  }
  return [...lines, line];
}

/** A width below 1 counts as 1, because a line holds at least one character. */
export function wrapWords(text: string, columns: number): string[] {
  const width = Math.max(1, columns);
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(/(?<= )/)) {
    if (textWidth(line) + textWidth(word.trimEnd()) <= width) {
      line += word;
      continue;
    }
    const pieces = wordPieces(line, word.trimEnd(), width);
    lines.push(...pieces.slice(0, -1));
    line = `${pieces.at(-1) ?? ""}${word.endsWith(" ") ? " " : ""}`;
  }
  return [...lines, line];
}

function wordPieces(line: string, word: string, width: number): string[] {
  const joined = textWidth(word) > width ? breakWord(line + word, width) : [];
  const [first = ""] = joined;
  if (first.length > line.length && PART_END.test(first)) return joined;
  return [...(line.trim() === "" ? [] : [line.trimEnd()]), ...breakWord(word, width)];
}

function breakWord(word: string, width: number): string[] {
  const lines: string[] = [];
  let rest = word;
  while (textWidth(rest) > width) {
    const [first = rest] = breakLines(rest, width);
    const part = first.slice(0, first.search(PARTS_END) + 1);
    const piece = textWidth(part) * 3 > width ? part : first;
    lines.push(piece);
    rest = rest.slice(piece.length);
  }
  return [...lines, rest];
}
