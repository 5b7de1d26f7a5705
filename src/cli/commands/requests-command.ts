/**
 * `gwctl requests` lists recent requests, and `gwctl explain <id>` shows the details of one.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import {
  type RequestDetail,
  type RequestRecord,
  type RequestResult,
  resultOf,
} from "../../observe/trace/request-record.ts";
import { type AdminClient, lineReader } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { type Cell, MESSAGE_CHARS, table, wrapWords } from "../terminal/table.ts";
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

export interface RequestsFlags extends TargetFlags {
  readonly limit?: string;
  readonly failed?: boolean;
  readonly follow?: boolean;
  readonly before?: string;
  readonly output?: string;
}

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 500;

export async function requests(name: string | undefined, flags: RequestsFlags, terminal: Terminal): Promise<void> {
  checkOutput(flags.output);
  const limit = flags.limit === undefined ? DEFAULT_LIMIT : Number(flags.limit);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT)
    throw usageError(`invalid --limit ${flags.limit}: expected a number from 1 to ${MAX_LIMIT}`);
  if (flags.before !== undefined && Number.isNaN(Date.parse(flags.before)))
    throw usageError(`invalid --before ${flags.before}: expected a time such as 2026-11-17T03:00:00Z`);
  if (flags.before !== undefined && flags.follow) throw usageError("--before cannot be combined with --follow");
  const { admin } = await openTarget(name, flags, terminal);
  try {
    if (flags.follow) {
      const isShown = flags.failed ? didNotSucceed : () => true;
      await follow(admin, { limit, isShown, isJson: flags.output === "json" }, terminal);
      return;
    }
    const fetched = flags.failed ? MAX_LIMIT : limit;
    const query = new URLSearchParams({ limit: String(fetched), ...(flags.before ? { before: flags.before } : {}) });
    const response = await admin.json<{ requests: RequestRecord[] }>(`${ADMIN_PATHS.requests}?${query}`, "requests");
    const shown = response.requests.filter((record) => !flags.failed || didNotSucceed(record)).slice(0, limit);
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(shown, null, 2)}\n`));
    else if (shown.length === 0) terminal.err(flags.failed ? "no failed requests\n" : "no requests yet\n");
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
  checkOutput(flags.output);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const path = `${ADMIN_PATHS.requests}?${new URLSearchParams({ id })}`;
    const found = await admin.json<{ requests: RequestDetail[] }>(path, "requests");
    const newest = found.requests[0];
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(found.requests, null, 2)}\n`));
    else if (newest) terminal.out(describeRequest(newest, found.requests.length - 1, paintOf(terminal)));
  } finally {
    admin.close();
  }
}

function checkOutput(format: string | undefined): void {
  if (format !== undefined && format !== "text" && format !== "json")
    throw usageError(`output format "${format}" is not text or json`);
}

function didNotSucceed(record: RequestRecord): boolean {
  return resultOf(record) !== "ok";
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
  const lines = request.story.map((sentence) => `${wrapWords(printable(sentence), columns).join("\n")}\n`);
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
  readonly isJson: boolean;
  isShown(record: RequestRecord): boolean;
}

export async function follow(admin: AdminClient, options: FollowOptions, terminal: Terminal): Promise<void> {
  const paint = paintOf(terminal);
  let lastSeq = -1;
  const show = (record: RequestRecord): void => {
    if (record.seq <= lastSeq) return;
    lastSeq = record.seq;
    if (!options.isShown(record)) return;
    terminal.out(options.isJson ? printable(`${JSON.stringify(record)}\n`) : followRow(record, paint));
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
  if (!options.isJson) terminal.out(followHead(paint));
  for (const record of [...past.requests].reverse()) show(record);
  for (const record of early) show(record);
  early = undefined;
  terminal.err("following; Ctrl-C to stop\n");
  await stream.ended;
  throw new CliError("the gateway closed the connection: is it still running?");
}

function recordOf(text: string): RequestRecord {
  try {
    return JSON.parse(text) as RequestRecord;
  } catch {
    throw new CliError(
      "the gateway sent something that is not a request: do gwctl and the gateway have the same version?",
    );
  }
}

const HEAD = ["TIME", "ID", "STATUS", "MS", "REQUEST", "ROUTE", "SUBJECT", "REASON"];
const WIDTHS = [12, 16, 6, 8, 28, 12, 12, 0];
const WIDE_COLUMNS = 125;
const NARROW_HEAD = [...HEAD.slice(0, 5), "ROUTE, SUBJECT, REASON"];
const NARROW_WIDTHS = WIDTHS.slice(0, 5);

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
