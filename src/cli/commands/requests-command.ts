/**
 * `gwctl requests` lists recent requests, and `gwctl explain <id>` shows the details of one.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { parseTime } from "../../base/clock.ts";
import { newForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import { explainOutcome } from "../../record/trace/explain.ts";
import { type RequestDetail, type RequestRecord, type RequestResult, resultOf } from "../../record/trace/record.ts";
import { type AdminClient, lineReader } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData, printRecord } from "../terminal/output.ts";
import { type Cell, MESSAGE_CHARS, table, textWidth, wrapWords } from "../terminal/table.ts";
import {
  CliError,
  type Paint,
  paintOf,
  printable,
  type Terminal,
  type Tone,
  usageError,
} from "../terminal/terminal.ts";
import { plainLine } from "../trace/trace-text.ts";
import { requestText } from "../views/traffic.ts";
import { openTarget } from "./open-target.ts";
import { type RequestFilterFlags, readRequests, requestFilter, sinceTime } from "./request-filter.ts";

const RECORD = peerInput("gateway/request-record");

export interface RequestsFlags extends TargetFlags, RequestFilterFlags {
  readonly limit?: string;
  readonly follow?: boolean;
  readonly before?: string;
  readonly output?: string;
}

const FILTERS = ["failed", "since", "route", "status", "key", "model", "tool"] as const;
const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 10_000;
const MAX_FOLLOW_LIMIT = 500;

export async function requests(name: string | undefined, flags: RequestsFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const limit = flags.limit === undefined ? DEFAULT_LIMIT : Number(flags.limit);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT)
    throw usageError(`invalid --limit ${flags.limit}: expected a number from 1 to ${MAX_LIMIT}`);
  if (flags.before !== undefined && Number.isNaN(parseTime(flags.before)))
    throw usageError(`invalid --before ${flags.before}: expected a time such as 2026-11-17T03:00:00Z`);
  if (flags.follow && (flags.before !== undefined || flags.since !== undefined))
    throw usageError("--before and --since cannot be combined with --follow");
  const matches = requestFilter(flags);
  const sinceMs = sinceTime(flags.since, terminal.clock.now());
  const isFiltered = FILTERS.some((name) => flags[name] !== undefined);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    if (flags.follow) {
      await follow(admin, { limit: Math.min(limit, MAX_FOLLOW_LIMIT), isShown: matches, format }, terminal);
      return;
    }
    const shown = await readRequests(admin, { limit, before: flags.before, sinceMs, matches, isFiltered });
    if (isData(format)) printData(shown, format, terminal);
    else if (shown.length === 0) terminal.err(isFiltered ? "no such requests\n" : "no requests yet\n");
    else terminal.out(requestsText(shown, paintOf(terminal)));
  } finally {
    admin.close();
  }
}

export interface ExplainFlags extends TargetFlags {
  readonly output?: string;
}

export async function explain(
  id: string,
  name: string | undefined,
  flags: ExplainFlags,
  terminal: Terminal,
): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const path = `${ADMIN_PATHS.requests}?${newForm({ id })}`;
    const found = await admin.json<{ requests: RequestDetail[] }>(path, "requests");
    const newest = found.requests[0];
    if (isData(format)) printData(found.requests, format, terminal);
    else if (newest) terminal.out(describeRequest(newest, found.requests.length - 1, paintOf(terminal)));
  } finally {
    admin.close();
  }
}

const RESULT_TONES: Readonly<Record<RequestResult, Tone>> = {
  ok: "good",
  rejected: "warn",
  failed: "bad",
  aborted: "warn",
};
const VERDICT_TONES: Readonly<Record<string, Tone>> = { refused: "bad", answered: "good" };

function describeRequest(request: RequestDetail, older: number, paint: Paint): string {
  const { columns = Number.POSITIVE_INFINITY } = paint;
  const outcome = explainOutcome(request);
  // The sentence about the outcome comes first, so it is not repeated below.
  const story = outcome === undefined ? request.story : [outcome, ...request.story.filter((one) => one !== outcome)];
  const lines = story.map((sentence) => `${wrapWords(printable(sentence), columns).join("\n")}\n`);
  if (request.steps.length > 0) {
    lines.push("\n");
    lines.push(
      table(
        [
          ["PHASE", "POLICY", "VERDICT", "µs"],
          ...request.steps.map(({ phase, policy, verdict, micros }) => [
            phase,
            policy,
            { text: verdict, tone: VERDICT_TONES[verdict] },
            String(micros),
          ]),
        ],
        { paint },
      ),
    );
  }
  if (request.trace) lines.push("\n", ...request.trace.map((event) => printable(plainLine(event))));
  if (older > 0) lines.push(`\n${older} older requests have the same id; use -o json to see them.\n`);
  return lines.join("");
}

const DATA = "data:";

export interface FollowOptions {
  readonly limit: number;
  readonly format: (typeof FORMATS)[number];
  isShown(record: RequestRecord): boolean;
}

export async function follow(admin: AdminClient, options: FollowOptions, terminal: Terminal): Promise<void> {
  const { format } = options;
  const paint = paintOf(terminal);
  let lastSeq = -1;
  let rows = 0;
  const show = (record: RequestRecord): void => {
    if (record.seq <= lastSeq) return;
    lastSeq = record.seq;
    if (!options.isShown(record)) return;
    if (isData(format)) {
      printRecord(record, format, terminal);
      return;
    }
    if (rows > 0 && rows % ROWS_PER_HEAD === 0) terminal.out(requestsHead(paint));
    rows += 1;
    terminal.out(requestRow(record, paint));
  };
  // Subscribes before reading past requests, so that no request is missed. New requests are queued in the meantime.
  let early: RequestRecord[] | undefined = [];
  const lines = lineReader((line) => {
    if (!line.startsWith(DATA)) return;
    const record = recordOf(line.slice(DATA.length));
    if (early) early.push(record);
    else show(record);
  });
  const stream = await admin.stream(`${ADMIN_PATHS.requests}?follow=true`, lines);
  const past = await admin.json<{ requests: RequestRecord[] }>(
    `${ADMIN_PATHS.requests}?limit=${options.limit}`,
    "requests",
  );
  if (!isData(format)) terminal.out(requestsHead(paint));
  for (const record of [...past.requests].reverse()) show(record);
  for (const record of early) show(record);
  early = undefined;
  terminal.err("following; Ctrl-C to stop\n");
  await stream.ended;
  throw new CliError("the gateway closed the connection: is it still running?");
}

function recordOf(text: string): RequestRecord {
  try {
    return readJson(RECORD, text) as RequestRecord;
  } catch {
    throw new CliError(
      "the gateway sent something that is not a request: do gwctl and the gateway have the same version?",
    );
  }
}

const HEAD = ["TIME", "ID", "STATUS", "MS", "REQUEST", "ROUTE", "SUBJECT", "REASON"];
const ID_COLUMN = 1;
const WHOLE_COLUMNS = [0, ID_COLUMN];
const MIN_TEXT_COLUMNS = 48;
const ID_WIDTH = 16;
const WIDTHS = [12, ID_WIDTH, 6, 8, 28, 12, 12, 0];
const WIDE_COLUMNS = 125;
/** Of `--follow`, so that a screen shows one. */
const ROWS_PER_HEAD = 20;
const NARROW_HEAD = [...HEAD.slice(0, 4), "REQUEST, ROUTE, SUBJECT, REASON"];

/** Lists the newest request last, next to the prompt. */
export function requestsText(records: readonly RequestRecord[], paint: Paint): string {
  const rows = [...records].reverse();
  if (!isNarrowFor(paint)) return table([HEAD, ...rows.map(row)], { paint, maxLastChars: MESSAGE_CHARS });
  const idWidth = Math.max(...rows.map(({ id }) => textWidth(printable(id))));
  return requestsHead(paint, idWidth) + rows.map((record) => requestRow(record, paint, idWidth)).join("");
}

export function requestsHead(paint: Paint, idWidth = ID_WIDTH): string {
  const isNarrow = isNarrowFor(paint);
  return table([isNarrow ? NARROW_HEAD : HEAD], {
    paint,
    minWidths: widthsFor(isNarrow, idWidth),
    idColumns: WHOLE_COLUMNS,
    minLastColumns: MIN_TEXT_COLUMNS,
  });
}

/** Widens the ID column for a longer id, so that it can be copied. */
export function requestRow(record: RequestRecord, paint: Paint, idWidth = ID_WIDTH): string {
  const isNarrow = isNarrowFor(paint);
  const minWidths = widthsFor(isNarrow, Math.max(idWidth, textWidth(printable(record.id))));
  const options = {
    paint,
    maxLastChars: MESSAGE_CHARS,
    minWidths,
    idColumns: WHOLE_COLUMNS,
    minLastColumns: MIN_TEXT_COLUMNS,
  };
  if (!isNarrow) return table([row(record)], options);
  const { route, subject } = record;
  const rest = [requestText(record), route && `route ${route}`, subject && `subject ${subject}`, reasonOf(record)]
    .filter(Boolean)
    .join(", ");
  return table([[...row(record).slice(0, 4), rest]], options);
}

function widthsFor(isNarrow: boolean, idWidth: number): number[] {
  return (isNarrow ? WIDTHS.slice(0, 4) : WIDTHS).map((width, column) => (column === ID_COLUMN ? idWidth : width));
}

function isNarrowFor({ columns }: Paint): boolean {
  return columns !== undefined && columns < WIDE_COLUMNS;
}

function row(record: RequestRecord): Cell[] {
  const { status, end } = record;
  return [
    record.time.slice(11, 23),
    record.id,
    {
      text: `${status ?? "-"}${end === "complete" ? "" : ` ${end}`}`,
      tone: RESULT_TONES[resultOf(record)],
    },
    record.durationMs.toFixed(1),
    requestText(record),
    record.route ?? "-",
    record.subject ?? "-",
    reasonOf(record),
  ];
}

/** A tool call can fail inside a response with status 200. */
function reasonOf({ failure, mcp }: RequestRecord): string {
  if (failure !== undefined) return `${failure.code}: ${(failure.detail ?? failure.message).replaceAll(/\s+/g, " ")}`;
  return mcp?.outcome === undefined || mcp.outcome === "ok" ? "" : mcp.outcome;
}
