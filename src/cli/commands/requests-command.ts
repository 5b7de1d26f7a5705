/**
 * `gwctl requests` and `gwctl explain <id>`: the last requests, and the story of one as a person would tell it.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { RequestDetail, RequestRecord } from "../../trace/request-record.ts";
import type { TargetFlags } from "../instance/target.ts";
import { usageError } from "../terminal/cli-error.ts";
import { table } from "../terminal/table.ts";
import { printable, type Terminal } from "../terminal/terminal.ts";
import { plainLine } from "../trace/trace-text.ts";
import { openTarget } from "./open-target.ts";

export interface RequestsFlags extends TargetFlags {
  readonly limit?: string;
  readonly failed?: boolean;
  readonly output?: string;
}

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 500;
/** The table stays readable; `gwctl explain` and `-o json` have the whole reason. */
const MAX_REASON_CHARS = 80;

export async function requests(name: string | undefined, flags: RequestsFlags, terminal: Terminal): Promise<void> {
  checkOutput(flags.output);
  const limit = flags.limit === undefined ? DEFAULT_LIMIT : Number(flags.limit);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT)
    throw usageError(`invalid --limit ${flags.limit}: expected a number from 1 to ${MAX_LIMIT}`);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const asked = flags.failed ? MAX_LIMIT : limit;
    const answer = await admin.json<{ requests: RequestRecord[] }>(
      `${ADMIN_PATHS.requests}?limit=${asked}`,
      "requests",
    );
    const shown = answer.requests.filter((record) => !flags.failed || isFailed(record)).slice(0, limit);
    if (flags.output === "json") terminal.out(printable(`${JSON.stringify(shown, null, 2)}\n`));
    else if (shown.length === 0) terminal.err(flags.failed ? "no failed requests\n" : "no requests yet\n");
    else terminal.out(table([HEAD, ...shown.map(row)]));
  } finally {
    admin.close();
  }
}

const HEAD = ["TIME", "ID", "STATUS", "MS", "REQUEST", "ROUTE", "SUBJECT", "REASON"];

function row(record: RequestRecord): string[] {
  return [
    record.time.slice(11, 23),
    record.id,
    `${record.status ?? "-"}${record.end === "complete" ? "" : ` ${record.end}`}`,
    record.durationMs.toFixed(1),
    whatWasAsked(record),
    record.route ?? "-",
    record.subject ?? "-",
    reasonOf(record),
  ];
}

function whatWasAsked({ method, path, mcp, llm }: RequestRecord): string {
  if (mcp?.method !== undefined) return `${mcp.method}${mcp.name === undefined ? "" : ` ${mcp.name}`}`;
  return `${method} ${path}${llm?.model === undefined ? "" : ` ${llm.model}`}`;
}

/** The code, and what is known beyond it. */
function reasonOf({ failure }: RequestRecord): string {
  if (failure === undefined) return "";
  const why = (failure.detail ?? failure.message).replaceAll(/\s+/g, " ");
  return `${failure.code}: ${why.length > MAX_REASON_CHARS ? `${why.slice(0, MAX_REASON_CHARS)}…` : why}`;
}

function isFailed({ failure, end, status }: RequestRecord): boolean {
  return failure !== undefined || end !== "complete" || (status ?? 0) >= 400;
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
    else if (newest) terminal.out(told(newest, found.requests.length - 1));
  } finally {
    admin.close();
  }
}

function checkOutput(format: string | undefined): void {
  if (format !== undefined && format !== "text" && format !== "json")
    throw usageError(`output format "${format}" is not text or json`);
}

function told(request: RequestDetail, older: number): string {
  const lines = request.story.map((sentence) => `${sentence}\n`);
  if (request.steps.length > 0) {
    lines.push("\n");
    lines.push(
      table([
        ["PHASE", "POLICY", "VERDICT", "µs"],
        ...request.steps.map(({ phase, policy, verdict, micros }) => [phase, policy, verdict, String(micros)]),
      ]),
    );
  }
  if (request.trace) lines.push("\n", ...request.trace.map(plainLine));
  if (older > 0) lines.push(`\n${older} older requests have the same id; use -o json to see them.\n`);
  return printable(lines.join(""));
}
