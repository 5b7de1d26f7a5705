/**
 * `gwctl top` shows the busiest routes, tools, models, and keys of the last minute.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { dollarText, durationText, percentText, rateText } from "../../base/format.ts";
import {
  perSecond,
  shareOf,
  sumOfTraffic,
  type TrafficGroup,
  type TrafficRow,
  type TrafficRows,
} from "../../record/trace/traffic-numbers.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printRecord } from "../terminal/output.ts";
import { type Cell, table } from "../terminal/table.ts";
import { type Paint, paintOf, type Terminal, usageError } from "../terminal/terminal.ts";
import { TRAFFIC_SECONDS, windowText } from "../views/traffic.ts";
import { openTarget } from "./open-target.ts";

export interface TopFlags extends TargetFlags {
  readonly by?: string;
  readonly interval?: string;
  readonly once?: boolean;
  readonly output?: string;
}

const ROWS_OF_ALL = 6;
const ROWS_OF_ONE = 30;

export async function top(name: string | undefined, flags: TopFlags, terminal: Terminal): Promise<void> {
  const kinds = kindsOf(flags.by);
  const intervalMs = 1_000 * secondsOf(flags.interval ?? "2");
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    for (;;) {
      const report = await readTop(admin, kinds);
      if (isData(format)) printRecord(report, format, terminal);
      else {
        const rows = kinds.length === 1 ? ROWS_OF_ONE : ROWS_OF_ALL;
        const head = `${admin.display}  last ${windowText(report)}${flags.once ? "" : "  Ctrl-C to stop"}\n\n`;
        const screen = head + topText(report, rows, paintOf(terminal));
        if (terminal.isInteractive && !flags.once) terminal.clear?.();
        terminal.out(screen);
      }
      if (flags.once) return;
      // The timers of the terminal's clock do not keep the process alive, so this is a Node.js timer.
      await sleep(intervalMs);
    }
  } finally {
    admin.close();
  }
}

export type TopReport = { readonly windowMs: number } & { readonly [Kind in TopKind]?: readonly TopRow[] };

async function readTop(admin: AdminClient, kinds: readonly TopKind[]): Promise<TopReport> {
  const reports = await Promise.all(
    kinds.map((kind) =>
      admin.json<TrafficRows>(`${ADMIN_PATHS.history}?by=${GROUPS[kind].group}&seconds=${TRAFFIC_SECONDS}`, "rows"),
    ),
  );
  return {
    windowMs: Math.round(1000 * (reports[0]?.windowSeconds ?? 0)),
    ...Object.fromEntries(reports.map((report, i) => [kinds[i], topRows(report, kinds[i] as TopKind)])),
  };
}

function kindsOf(by: string | undefined): readonly TopKind[] {
  if (by === undefined) return TOP_KINDS;
  const found = TOP_KINDS.find((kind) => kind === by);
  if (found === undefined) throw usageError(`invalid --by ${by}: expected ${TOP_KINDS.join(", ")}`);
  return [found];
}

function secondsOf(text: string): number {
  const seconds = Number(text);
  if (!Number.isFinite(seconds) || seconds < 0.5 || seconds > 60)
    throw usageError(`invalid --interval ${text}: expected seconds from 0.5 to 60`);
  return seconds;
}

export type TopKind = "route" | "tool" | "model" | "key";

export const TOP_KINDS: readonly TopKind[] = ["route", "tool", "model", "key"];

const GROUPS: Readonly<
  Record<TopKind, { readonly group: TrafficGroup; readonly nameOf: (name: readonly string[]) => string }>
> = {
  route: { group: "node", nameOf: ([, route]) => route || "(no route)" },
  tool: { group: "tool", nameOf: ([server, tool]) => (server === "" ? (tool ?? "") : `${server}/${tool}`) },
  model: { group: "model", nameOf: ([model]) => model ?? "" },
  key: { group: "user", nameOf: ([user]) => user ?? "" },
};

export interface TopRow {
  readonly name: string;
  readonly perSecond: number;
  readonly requests: number;
  /** `failed` and `rejected` are fractions of the requests, from 0 to 1. */
  readonly failed: number;
  readonly rejected: number;
  readonly p95Ms: number;
  readonly tokens: number;
  readonly cost: number;
}

/** A route can have several nodes, one for each listener and backend. */
export function topRows({ rows, windowSeconds }: TrafficRows, kind: TopKind): TopRow[] {
  const byName = new Map<string, TrafficRow[]>();
  for (const row of rows) {
    const name = GROUPS[kind].nameOf(row.name);
    byName.set(name, [...(byName.get(name) ?? []), row]);
  }
  return [...byName]
    .map(([name, parts]) => {
      const sum = sumOfTraffic(parts);
      return {
        name,
        perSecond: perSecond(sum, windowSeconds),
        requests: sum.requests,
        failed: shareOf("failed", sum),
        rejected: shareOf("rejected", sum),
        p95Ms: sum.p95Ms ?? 0,
        tokens: sum.tokens,
        cost: sum.cost,
      };
    })
    .sort((a, b) => b.requests - a.requests || b.tokens - a.tokens || (a.name < b.name ? -1 : 1));
}

const TITLES: Readonly<Record<TopKind, string>> = { route: "ROUTE", tool: "TOOL", model: "MODEL", key: "USER OR KEY" };

export function topText(report: TopReport, rows: number, paint: Paint): string {
  const parts = TOP_KINDS.flatMap((kind) => {
    const all = report[kind] ?? [];
    if (all.length === 0) return [];
    const head: Cell[] = [TITLES[kind], "RATE", "REQUESTS", "FAILED", "REJECTED", "P95", "TOKENS", "COST"].map(
      (text) => ({
        text,
        tone: "bold" as const,
      }),
    );
    const more = all.length > rows ? paint(`  … ${all.length - rows} more: gwctl top --by ${kind}\n`, "dim") : "";
    return [`${table([head, ...all.slice(0, rows).map(cells)], { paint })}${more}`];
  });
  return parts.length === 0 ? "no requests yet\n" : parts.join("\n");
}

function cells(row: TopRow): Cell[] {
  return [
    row.name,
    rateText(row.perSecond),
    String(row.requests),
    { text: shareText(row.failed), tone: row.failed > 0 ? "bad" : "dim" },
    { text: shareText(row.rejected), tone: row.rejected > 0 ? "warn" : "dim" },
    durationText(row.p95Ms),
    row.tokens === 0 ? "" : String(row.tokens),
    row.cost === 0 ? "" : dollarText(row.cost),
  ];
}

function shareText(share: number): string {
  return share === 0 ? "-" : percentText(share);
}
