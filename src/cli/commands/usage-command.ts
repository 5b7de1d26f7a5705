/**
 * `gwctl usage` reports usage from the history database. `gwctl history` shows the state of the database, compares it
 * with budgets, and deletes the rows of a user.
 */

import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { type Form, newForm } from "../../base/form.ts";
import { bytesText, dollarText } from "../../base/format.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { UsageReport, UsageSums } from "../../record/trace/traffic-numbers.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";
import { paintOf, printable, type Terminal, usageError } from "../terminal/terminal.ts";
import { counted } from "../views/units.ts";
import { openTarget, showReport } from "./open-target.ts";

const RESPONSE = peerInput("gateway/admin-response");

export interface UsageFlags extends TargetFlags {
  readonly by?: string;
  readonly since?: string;
  readonly until?: string;
  readonly filter?: readonly string[];
  readonly limit?: string;
  readonly output?: string;
}

const USAGE_FORMATS = ["table", "json", "yaml", "csv"] as const;
const PAGE = 1_000;
const DELETE_LIMIT_MS = 300_000;
const MAX_LIMIT = 100_000;
const SHOWN = {
  requests: "REQUESTS",
  ok: "OK",
  rejected: "REJECTED",
  failed: "FAILED",
  aborted: "ABORTED",
  inputTokens: "INPUT",
  outputTokens: "OUTPUT",
  cost: "COST",
} as const;

/** A narrower table omits the requests that succeeded or were aborted. */
const WIDE_COLUMNS = 100;

export async function usage(name: string | undefined, flags: UsageFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, USAGE_FORMATS);
  const limit = flags.limit === undefined ? PAGE : Number(flags.limit);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT)
    throw usageError(`invalid --limit ${flags.limit}: expected a number from 1 to ${MAX_LIMIT}`);
  const query = usageQuery(flags);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const report = await readPages(admin, query, limit);
    if (isData(format)) printData(report, format, terminal);
    else if (format === "csv") terminal.out(printable(csv(report)));
    else terminal.out(table(tableRows(report, terminal.columns), { paint: paintOf(terminal) }));
    if (report.next !== null) terminal.err(`there are more rows; use --limit ${Math.min(MAX_LIMIT, limit * 10)}\n`);
  } finally {
    admin.close();
  }
}

function usageQuery({ by, since, until, filter = [] }: UsageFlags): Form {
  const query = newForm();
  if (by !== undefined) query.set("by", by);
  if (since !== undefined) query.set("since", since);
  if (until !== undefined) query.set("until", until);
  for (const text of filter) {
    const at = text.indexOf("=");
    if (at < 1) throw usageError(`invalid --filter ${text}: expected name=value, for example team=research`);
    query.set(text.slice(0, at), text.slice(at + 1));
  }
  return query;
}

async function readPages(admin: AdminClient, query: Form, limit: number): Promise<UsageReport> {
  const rows: UsageReport["rows"][number][] = [];
  for (let cursor = 0; ; ) {
    query.set("limit", String(Math.min(PAGE, limit - rows.length)));
    query.set("cursor", String(cursor));
    const page = await admin.json<UsageReport>(`${ADMIN_PATHS.usage}?${query}`, "rows");
    rows.push(...page.rows);
    if (page.next === null || rows.length >= limit) return { ...page, rows };
    cursor = page.next;
  }
}

function tableRows({ by, rows, total }: UsageReport, columns = Number.POSITIVE_INFINITY): string[][] {
  const all = Object.keys(SHOWN) as (keyof typeof SHOWN)[];
  const sums = columns < WIDE_COLUMNS ? all.filter((sum) => sum !== "ok" && sum !== "aborted") : all;
  const cells = (row: UsageSums): string[] =>
    sums.map((sum) => (sum === "cost" ? dollarText(Number(row.cost)) : String(row[sum])));
  const head = [...by.map((name) => name.toUpperCase()), ...sums.map((sum) => SHOWN[sum])];
  const listed = rows.map((row) => [...by.map((name) => String(row[name] || "-")), ...cells(row)]);
  if (by.length === 0) return [head, cells(total)];
  return [head, ...listed, [...by.map((_, i) => (i === 0 ? "total" : "")), ...cells(total)]];
}

function csv({ by, rows, total }: UsageReport): string {
  const names = [...by, ...Object.keys(total)];
  const shown = (by.length === 0 ? [total] : rows).map((row) => new Map(Object.entries(row)));
  return [names, ...shown.map((cells) => names.map((name) => cells.get(name) ?? ""))]
    .map((cells) => `${cells.map(csvCell).join(",")}\n`)
    .join("");
}

/** Spreadsheets run a cell that starts with one of these characters as a formula. */
const FORMULA = /^[=+\-@\t\r]/;

function csvCell(value: string | number): string {
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

interface HistoryStatus {
  readonly database: string;
  readonly state: string;
  readonly reason?: string;
  readonly queuedRows: number;
  readonly spoolBytes: number;
  readonly written: number;
  readonly spooled: number;
  readonly dropped: number;
  readonly stored: { readonly rows: number; readonly oldest: string | null; readonly newest: string | null } | null;
}

export interface HistoryFlags extends TargetFlags {
  readonly output?: string;
}

export async function historyStatus(name: string | undefined, flags: HistoryFlags, terminal: Terminal): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const status = await admin.json<HistoryStatus>(ADMIN_PATHS.usageStatus, "database");
    if (isData(format)) {
      printData(status, format, terminal);
      return;
    }
    const { stored, reason } = status;
    const rows = [
      ["DATABASE", `${status.database}, ${status.state}${reason === undefined ? "" : `: ${reason}`}`],
      [
        "STORED",
        stored === null ? "-" : `${counted(stored.rows, "row")}, ${stored.oldest ?? "-"} to ${stored.newest ?? "-"}`,
      ],
      ["WAITING", `${counted(status.queuedRows, "row")} in memory, ${bytesText(status.spoolBytes)} on disk`],
      ["SINCE START", `${status.written} written, ${status.spooled} spooled, ${status.dropped} dropped`],
    ];
    terminal.out(table(rows, { paint: paintOf(terminal) }));
  } finally {
    admin.close();
  }
}

interface BudgetComparison {
  readonly compared: number;
  readonly differing: number;
  readonly queuedRows: number;
  readonly spoolBytes: number;
  readonly dropped: number;
  readonly accounts: readonly {
    readonly budget: string;
    readonly unit: string;
    readonly per: string;
    readonly period: string;
    readonly key: string;
    readonly ledger: number;
    readonly history: number;
    readonly difference: number;
  }[];
}

export function historyBudgets(name: string | undefined, flags: HistoryFlags, terminal: Terminal): Promise<void> {
  return showReport<BudgetComparison>(name, flags, terminal, {
    path: ADMIN_PATHS.usageBudgets,
    list: "accounts",
    isEmpty: ({ differing }) => differing === 0,
    nothing: ({ compared }) => `${counted(compared, "account")} compared: budgets and history agree`,
    draw: ({ accounts, queuedRows, dropped }, paint) => {
      const rows = accounts
        .filter(({ difference }) => difference !== 0)
        .map(({ budget, per, period, key, unit, ledger, history, difference }) => [
          budget,
          `${per} ${period}`,
          key,
          unit,
          ...[ledger, history, difference].map(String),
        ]);
      const head = ["BUDGET", "PERIOD", "KEY", "UNIT", "BUDGET SPENT", "HISTORY", "DIFFERENCE"];
      return `${table([head, ...rows], { paint })}${counted(queuedRows, "row")} waiting, ${counted(dropped, "row")} dropped\n`;
    },
  });
}

export interface DeleteFlags extends TargetFlags {
  readonly subject: string;
}

export async function deleteHistory(name: string | undefined, flags: DeleteFlags, terminal: Terminal): Promise<void> {
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const body = JSON.stringify({ subject: flags.subject });
    const response = await admin.post(ADMIN_PATHS.usageDelete, { body, timeoutMs: DELETE_LIMIT_MS });
    const { deleted } = readJson(RESPONSE, response.body) as { deleted: number };
    terminal.out(printable(`deleted ${counted(deleted, "row")} of ${flags.subject}\n`));
  } finally {
    admin.close();
  }
}
