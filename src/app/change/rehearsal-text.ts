/**
 * What `gateway --rehearse` prints, and its exit code: 0 if nobody is denied, admitted or limited who was not before, 1 if
 * somebody is, 2 if there was nothing to judge. `--strict` also counts routes, answers and headers that change.
 */
import { escapeControls } from "../../lib/log/logger.ts";
import type { RehearsalReport, SubjectChange } from "./rehearsal-report.ts";

const SHOWN_ROWS = 20;
const SHOWN_SUBJECTS = 5;

export function rehearsalCode(report: RehearsalReport, strict: boolean): number {
  const { requests, denied, admitted, limits, routes, answers, headers } = report;
  // A check that looked at nothing must not pass.
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
  // Names and paths come from clients: no character of them moves the cursor.
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
