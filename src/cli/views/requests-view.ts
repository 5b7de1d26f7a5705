/**
 * Requests as rows: one table of those that are over, or one row after another as they end.
 */
import type { RequestRecord } from "../../observe/trace/request-record.ts";
import { type Cell, MESSAGE_CHARS, table } from "../terminal/table.ts";
import { type Paint, statusTone } from "../terminal/terminal.ts";
import { askedText } from "./traffic.ts";

const HEAD = ["TIME", "ID", "STATUS", "MS", "REQUEST", "ROUTE", "SUBJECT", "REASON"];
/** For rows that are printed before the next one is known. */
const WIDTHS = [12, 16, 6, 8, 28, 12, 12, 0];
/** On a narrower terminal the last three are one text below the row, so that no time and no id is broken. */
const WIDE_COLUMNS = 125;
const NARROW_HEAD = [...HEAD.slice(0, 5), "ROUTE, SUBJECT, REASON"];
const NARROW_WIDTHS = WIDTHS.slice(0, 5);
/** A reason is never cut: its end says how to fix it. Only a runaway one is. */

export function requestsText(records: readonly RequestRecord[], paint: Paint): string {
  return table([HEAD, ...records.map(row)], { paint, maxLastChars: MESSAGE_CHARS });
}

export function followHead(paint: Paint): string {
  const isNarrow = isNarrowFor(paint);
  return table([isNarrow ? NARROW_HEAD : HEAD], { paint, minWidths: isNarrow ? NARROW_WIDTHS : WIDTHS });
}

export function followRow(record: RequestRecord, paint: Paint): string {
  const options = { paint, maxLastChars: MESSAGE_CHARS };
  if (!isNarrowFor(paint)) return table([row(record)], { ...options, minWidths: WIDTHS });
  const { route, subject } = record;
  const rest = [route && `route ${route}`, subject && `subject ${subject}`, reasonOf(record)]
    .filter(Boolean)
    .join(", ");
  return table([[...row(record).slice(0, 5), rest]], { ...options, minWidths: NARROW_WIDTHS });
}

function isNarrowFor({ columns }: Paint): boolean {
  return columns !== undefined && columns < WIDE_COLUMNS;
}

function row(record: RequestRecord): Cell[] {
  const { status, end, mcp } = record;
  const isToolFailure = mcp?.outcome !== undefined && mcp.outcome !== "ok";
  return [
    record.time.slice(11, 23),
    record.id,
    {
      text: `${status ?? "-"}${end === "complete" ? "" : ` ${end}`}`,
      tone: statusTone(status) ?? (isToolFailure ? "warn" : "good"),
    },
    record.durationMs.toFixed(1),
    askedText(record),
    record.route ?? "-",
    record.subject ?? "-",
    reasonOf(record),
  ];
}

/** The code, and what is known beyond it. A tool may fail inside a response of 200. */
function reasonOf({ failure, mcp }: RequestRecord): string {
  if (failure !== undefined) return `${failure.code}: ${(failure.detail ?? failure.message).replaceAll(/\s+/g, " ")}`;
  return mcp?.outcome === undefined || mcp.outcome === "ok" ? "" : mcp.outcome;
}
