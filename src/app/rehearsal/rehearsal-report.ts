/**
 * Builds the report of a rehearsal: subjects that would be newly denied or admitted, limits that would reject requests,
 * and changed routes and headers.
 */

import { escapeControls } from "../../base/safe-text.ts";
import { defined } from "../../json/json.ts";
import type { Verdict } from "../../pipeline/dry-run/dry-run.ts";
import { extractRule } from "../../record/policy-reports.ts";
import type { RecordedRequest } from "../../record/recorded-request.ts";

/** Further rows are only counted. */
const MAX_REHEARSED_ROWS = 500;
const EXAMPLES = 3;
const REASON_CHARS = 400;
/** These headers differ with each request or with time. */
const VOLATILE = new Set([
  "x-request-id",
  "x-ratelimit-limit",
  "x-ratelimit-remaining",
  "x-ratelimit-reset",
  "retry-after",
  "date",
  "traceparent",
]);

interface SubjectChange {
  readonly subject: string;
  readonly name?: string;
  requests: number;
  readonly reasons: {
    readonly route: string | null;
    readonly code: string;
    readonly reason: string;
    requests: number;
  }[];
  readonly examples: string[];
}

interface Change {
  readonly from: string | null;
  readonly to: string | null;
  requests: number;
  readonly example: string;
}

interface LimitChange {
  readonly route: string | null;
  readonly limit: string;
  refused: number;
  readonly subjects: { readonly subject: string; requests: number }[];
}

interface HeaderChange {
  readonly side: "request" | "response";
  readonly name: string;
  readonly change: "added" | "removed" | "changed";
  readonly route: string | null;
  requests: number;
}

export interface RehearsalReport {
  readonly requests: number;
  readonly unchanged: number;
  readonly first: string | null;
  readonly last: string | null;
  readonly durationMs: number;
  readonly denied: readonly SubjectChange[];
  readonly admitted: readonly SubjectChange[];
  readonly limits: readonly LimitChange[];
  readonly routes: readonly Change[];
  /** Lists requests whose outcome changes, for example from forwarded to rejected. */
  readonly answers: readonly Change[];
  readonly headers: readonly HeaderChange[];
  readonly unlisted: number;
  readonly notes: readonly string[];
}

interface RehearsalCount {
  add(recorded: RecordedRequest, before: Verdict, after: Verdict): void;
  report(durationMs: number, notes: readonly string[]): RehearsalReport;
}

/** For sensitive headers, only presence is compared. */
export function createRehearsalCount(isSensitive: (name: string) => boolean): RehearsalCount {
  const denied = new Map<string, SubjectChange>();
  const admitted = new Map<string, SubjectChange>();
  const limits = new Map<string, LimitChange>();
  const routes = new Map<string, Change>();
  const answers = new Map<string, Change>();
  const headers = new Map<string, HeaderChange>();
  let requests = 0;
  let unchanged = 0;
  let unlisted = 0;
  let firstAt: number | undefined;
  let lastAt: number | undefined;

  function rowOf<Row>(rows: Map<string, Row>, key: string, make: () => Row): Row | undefined {
    const known = rows.get(key);
    if (known !== undefined) return known;
    if (rows.size >= MAX_REHEARSED_ROWS) {
      unlisted += 1;
      return undefined;
    }
    const row = make();
    rows.set(key, row);
    return row;
  }

  function noteSubject(rows: Map<string, SubjectChange>, recorded: RecordedRequest, refused: Verdict): void {
    const subject = recorded.subject ?? "(anonymous)";
    const name = nameOf(recorded, subject);
    const row = rowOf(rows, subject, () => ({
      subject,
      ...defined({ name }),
      requests: 0,
      reasons: [],
      examples: [],
    }));
    if (row === undefined) return;
    row.requests += 1;
    if (row.examples.length < EXAMPLES) row.examples.push(recorded.id);
    const code = refused.code ?? "refused";
    const reason = extractRule(refused.reason ?? code).slice(0, REASON_CHARS);
    const known = row.reasons.find((one) => one.code === code && one.reason === reason && one.route === refused.route);
    if (known) known.requests += 1;
    else if (row.reasons.length < EXAMPLES) row.reasons.push({ route: refused.route, code, reason, requests: 1 });
  }

  function noteLimit(recorded: RecordedRequest, { route, reason }: Verdict): void {
    const limit = /the limit of (.+?) (?:is exhausted|is used up|has \d)/.exec(reason ?? "")?.[1] ?? reason ?? "";
    const row = rowOf(limits, JSON.stringify([route, limit]), () => ({ route, limit, refused: 0, subjects: [] }));
    if (row === undefined) return;
    row.refused += 1;
    const subject = recorded.subject ?? "(anonymous)";
    const known = row.subjects.find((one) => one.subject === subject);
    if (known) known.requests += 1;
    else if (row.subjects.length < MAX_REHEARSED_ROWS) row.subjects.push({ subject, requests: 1 });
  }

  function noteChange(rows: Map<string, Change>, from: string | null, to: string | null, example: string): void {
    const row = rowOf(rows, JSON.stringify([from, to]), () => ({ from, to, requests: 0, example }));
    if (row) row.requests += 1;
  }

  function noteHeaders(side: HeaderChange["side"], before: Verdict, after: Verdict): boolean {
    const pairs = side === "request" ? before.requestHeaders : before.responseHeaders;
    const others = side === "request" ? after.requestHeaders : after.responseHeaders;
    if (pairs === undefined || others === undefined || isSameList(pairs, others)) return false;
    const [one, other] = [valuesOf(pairs), valuesOf(others)];
    let differs = false;
    const note = (name: string, change: HeaderChange["change"]): void => {
      differs = true;
      const { route } = after;
      const key = JSON.stringify([side, name, change, route]);
      const row = rowOf(headers, key, () => ({ side, name, change, route, requests: 0 }));
      if (row) row.requests += 1;
    };
    for (const [name, value] of one) {
      const now = other.get(name);
      if (now === undefined) note(name, "removed");
      else if (now !== value && !isSensitive(name)) note(name, "changed");
    }
    for (const name of other.keys()) if (!one.has(name)) note(name, "added");
    return differs;
  }

  return {
    add(recorded, before, after) {
      requests += 1;
      firstAt = Math.min(firstAt ?? recorded.at, recorded.at);
      lastAt = Math.max(lastAt ?? recorded.at, recorded.at);
      let isChanged = false;
      if (before.route !== after.route) {
        isChanged = true;
        noteChange(routes, before.route, after.route, recorded.id);
      }
      const [was, is] = [before.outcome === "refused", after.outcome === "refused"];
      if (!was && is && after.code === "rate_limited") noteLimit(recorded, after);
      else if (!was && is) noteSubject(denied, recorded, after);
      else if (was && !is && before.code !== "rate_limited") noteSubject(admitted, recorded, before);
      const [from, to] = [answerOf(before), answerOf(after)];
      if (from !== to) {
        isChanged = true;
        noteChange(answers, from, to, recorded.id);
      } else if (noteHeaders("request", before, after) || noteHeaders("response", before, after)) isChanged = true;
      if (!isChanged) unchanged += 1;
    },
    report: (durationMs, notes) => ({
      requests,
      unchanged,
      first: firstAt === undefined ? null : new Date(firstAt).toISOString(),
      last: lastAt === undefined ? null : new Date(lastAt).toISOString(),
      durationMs: Math.round(durationMs),
      denied: sorted(denied, ({ requests: count }) => count),
      admitted: sorted(admitted, ({ requests: count }) => count),
      limits: sorted(limits, ({ refused }) => refused),
      routes: sorted(routes, ({ requests: count }) => count),
      answers: sorted(answers, ({ requests: count }) => count),
      headers: sorted(headers, ({ requests: count }) => count),
      unlisted,
      notes,
    }),
  };
}

function isSameList(one: readonly string[], other: readonly string[]): boolean {
  if (one.length !== other.length) return false;
  for (let i = 0; i < one.length; i++) if (one[i] !== other[i]) return false;
  return true;
}

function valuesOf(pairs: readonly string[]): Map<string, string> {
  const values = new Map<string, string>();
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const [name, value] = [pairs[i] as string, pairs[i + 1] as string];
    if (VOLATILE.has(name)) continue;
    const before = values.get(name);
    values.set(name, before === undefined ? value : `${before},${value}`);
  }
  return values;
}

function answerOf({ outcome, status, code }: Verdict): string {
  if (outcome === "forwarded") return "forwarded";
  return outcome === "answered" ? `answered ${status}` : `refused ${status} ${code ?? ""}`.trimEnd();
}

/** Subjects are often opaque IDs, so a readable claim is shown too. */
function nameOf({ claims }: RecordedRequest, subject: string): string | undefined {
  const names = [claims?.preferred_username, claims?.email, claims?.upn, claims?.name];
  return names.find((name): name is string => typeof name === "string" && name !== "" && name !== subject);
}

function sorted<Row>(rows: Map<string, Row>, count: (row: Row) => number): Row[] {
  return [...rows.values()].sort((one, other) => count(other) - count(one));
}

const SHOWN_ROWS = 20;
const SHOWN_SUBJECTS = 5;

export function rehearsalCode(report: RehearsalReport, strict: boolean): number {
  const { requests, denied, admitted, limits, routes, answers, headers } = report;
  // A rehearsal without requests proves nothing, so it must not pass.
  if (requests === 0) return 2;
  const matters = [denied, admitted, limits, ...(strict ? [routes, answers, headers] : [])];
  return matters.some(({ length }) => length > 0) ? 1 : 0;
}

export function rehearsalText(report: RehearsalReport): string {
  const { requests, unchanged, first, last, durationMs, denied, admitted, limits, routes, answers, headers } = report;
  if (requests === 0) return "no requests are recorded: nothing was rehearsed\n";
  const lines = [
    `${requests} requests from ${first} to ${last}: ${unchanged} unchanged (${durationMs} ms)`,
    ...section(`newly denied: ${people(denied)}`, denied.map(subjectLine)),
    ...section(`newly admitted: ${people(admitted)}`, admitted.map(subjectLine)),
    ...section(
      "limits that would refuse",
      limits.map(
        ({ route, limit, refused, subjects }) =>
          `${count(refused)} on route ${shown(route)}: ${limit}: ${subjects
            .slice(0, SHOWN_SUBJECTS)
            .map(({ subject, requests: of }) => `${subject} (${of})`)
            .join(", ")}${subjects.length > SHOWN_SUBJECTS ? ` … ${subjects.length} in all` : ""}`,
      ),
    ),
    ...section(
      "routes that change",
      routes.map(({ from, to, requests: of, example }) => `${count(of)}: ${shown(from)} → ${shown(to)} (${example})`),
    ),
    ...section(
      "other answers",
      answers.map(({ from, to, requests: of, example }) => `${count(of)}: ${from} → ${to} (${example})`),
    ),
    ...section(
      "headers that differ",
      headers.map(
        ({ side, name, change, route, requests: of }) =>
          `${count(of)}: ${side} ${name} ${change} on route ${shown(route)}`,
      ),
    ),
    ...(report.unlisted > 0 ? ["", `${report.unlisted} more changes are not listed`] : []),
    ...report.notes.map((note) => `note: ${note}`),
  ];
  // Clients choose the names and paths, so control characters are escaped.
  return `${lines.map((line) => escapeControls(line.replaceAll("\n", " "))).join("\n")}\n`;
}

function section(title: string, rows: readonly string[]): string[] {
  if (rows.length === 0) return [];
  const more = rows.length > SHOWN_ROWS ? [`  … ${rows.length - SHOWN_ROWS} more (--format json lists them)`] : [];
  return ["", title, ...rows.slice(0, SHOWN_ROWS).map((row) => `  ${row}`), ...more];
}

function people(rows: readonly SubjectChange[]): string {
  const requests = rows.reduce((sum, row) => sum + row.requests, 0);
  return `${rows.length} ${rows.length === 1 ? "subject" : "subjects"}, ${count(requests)}`;
}

function subjectLine({ subject, name, requests, reasons, examples }: SubjectChange): string {
  const [reason] = reasons;
  const who = name === undefined ? subject : `${name} (${subject})`;
  return `${who}: ${count(requests)}: ${reason?.code}: ${reason?.reason} (${examples[0]})`;
}

function count(requests: number): string {
  return `${requests} ${requests === 1 ? "request" : "requests"}`;
}

function shown(route: string | null): string {
  return route ?? "(none)";
}
