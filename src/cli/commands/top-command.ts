/**
 * `gwctl top` shows the busiest routes, tools, models, and keys of the last minute.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { type RequestRecord, resultOf } from "../../observe/trace/request-record.ts";
import type { AdminClient } from "../instance/admin-client.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printRecord } from "../terminal/output.ts";
import { type Cell, table } from "../terminal/table.ts";
import { type Paint, paintOf, type Terminal, usageError } from "../terminal/terminal.ts";
import { ageText, msText } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

export interface TopFlags extends TargetFlags {
  readonly by?: string;
  readonly interval?: string;
  readonly once?: boolean;
  readonly output?: string;
}

const RECORDS = 500;
const WINDOW_MS = 60_000;
const MIN_WINDOW_MS = 1_000;
const ROWS_OF_ALL = 6;
const ROWS_OF_ONE = 30;

export async function top(name: string | undefined, flags: TopFlags, terminal: Terminal): Promise<void> {
  const kinds = kindsOf(flags.by);
  const intervalMs = 1_000 * secondsOf(flags.interval ?? "2");
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const watch = createWatch(admin);
    for (;;) {
      const nowMs = terminal.clock.now();
      const { looks, windowMs, isSampled } = await watch.look(nowMs);
      if (isData(format)) printRecord(jsonOf(looks, kinds, windowMs), format, terminal);
      else {
        const rows = kinds.length === 1 ? ROWS_OF_ONE : ROWS_OF_ALL;
        const note = isSampled ? ", estimated from a sample" : "";
        const head = `${admin.display}  last ${ageText(windowMs)}${note}${flags.once ? "" : "  Ctrl-C to stop"}\n\n`;
        const screen = head + topText(looks, kinds, windowMs, rows, paintOf(terminal));
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

interface Watch {
  look(nowMs: number): Promise<{ looks: readonly Look[]; windowMs: number; isSampled: boolean }>;
}

function createWatch(admin: AdminClient): Watch {
  let looks: Look[] = [];
  let lastSeq: number | undefined;

  async function newest(): Promise<RequestRecord[]> {
    const since = lastSeq === undefined ? "" : `&since=${lastSeq}`;
    const response = await admin.json<{ requests: RequestRecord[] }>(
      `${ADMIN_PATHS.requests}?limit=${RECORDS}${since}`,
      "requests",
    );
    return response.requests;
  }

  return {
    async look(nowMs) {
      let records = await newest();
      if (records.length === 0 && lastSeq !== undefined && (await isRestarted(admin, lastSeq))) {
        lastSeq = undefined;
        looks = [];
        records = await newest();
      }
      const first = lastSeq;
      const last = records[0]?.seq;
      const count = first === undefined || last === undefined ? records.length : last - first;
      lastSeq = last ?? lastSeq;
      const recent = records.filter(({ time }) => Date.parse(time) > nowMs - WINDOW_MS);
      const weight = records.length === 0 ? 1 : Math.max(1, count / records.length);
      looks = [...looks, { atMs: nowMs, weight, records: recent }].filter(({ atMs }) => atMs > nowMs - WINDOW_MS);
      const oldest = looks.reduce(
        (least, look) => look.records.reduce((before, { time }) => Math.min(before, Date.parse(time)), least),
        nowMs,
      );
      const windowMs = Math.min(WINDOW_MS, Math.max(MIN_WINDOW_MS, nowMs - oldest));
      return { looks, windowMs, isSampled: looks.some((look) => look.weight > 1) };
    },
  };
}

async function isRestarted(admin: AdminClient, lastSeq: number): Promise<boolean> {
  const { requests } = await admin.json<{ requests: RequestRecord[] }>(`${ADMIN_PATHS.requests}?limit=1`, "requests");
  return (requests[0]?.seq ?? -1) < lastSeq;
}

function jsonOf(looks: readonly Look[], kinds: readonly TopKind[], windowMs: number): object {
  return { windowMs, ...Object.fromEntries(kinds.map((kind) => [kind, topRows(looks, kind, windowMs)])) };
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

/** Each record represents `weight` requests. */
export interface Look {
  readonly atMs: number;
  readonly weight: number;
  readonly records: readonly RequestRecord[];
}

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

interface Sums {
  requests: number;
  failed: number;
  rejected: number;
  tokens: number;
  cost: number;
  readonly durations: number[];
}

export function topRows(looks: readonly Look[], kind: TopKind, windowMs: number): TopRow[] {
  const sums = new Map<string, Sums>();
  for (const { weight, records } of looks)
    for (const record of records) {
      const name = nameOf(record, kind);
      if (name === undefined) continue;
      const sum = sums.get(name) ?? { requests: 0, failed: 0, rejected: 0, tokens: 0, cost: 0, durations: [] };
      sums.set(name, sum);
      sum.requests += weight;
      const result = resultOf(record);
      if (result === "failed" || result === "rejected") sum[result] += weight;
      sum.tokens += weight * ((record.llm?.inputTokens ?? 0) + (record.llm?.outputTokens ?? 0));
      sum.cost += weight * (record.llm?.cost ?? 0);
      sum.durations.push(record.durationMs);
    }
  return [...sums]
    .map(([name, { requests, failed, rejected, tokens, cost, durations }]) => ({
      name,
      perSecond: (requests * 1000) / windowMs,
      requests: Math.round(requests),
      failed: failed / requests,
      rejected: rejected / requests,
      p95Ms: p95Of(durations),
      tokens: Math.round(tokens),
      cost,
    }))
    .sort((a, b) => b.requests - a.requests || b.tokens - a.tokens || (a.name < b.name ? -1 : 1));
}

const TITLES: Readonly<Record<TopKind, string>> = { route: "ROUTE", tool: "TOOL", model: "MODEL", key: "USER OR KEY" };

export function topText(
  looks: readonly Look[],
  kinds: readonly TopKind[],
  windowMs: number,
  rows: number,
  paint: Paint,
): string {
  const parts = kinds.flatMap((kind) => {
    const all = topRows(looks, kind, windowMs);
    if (all.length === 0) return [];
    const head: Cell[] = [TITLES[kind], "REQ/S", "REQUESTS", "FAILED", "REJECTED", "P95", "TOKENS", "COST"].map(
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
    row.perSecond.toFixed(row.perSecond < 10 ? 2 : 0),
    String(row.requests),
    { text: shareText(row.failed), tone: row.failed > 0 ? "bad" : "dim" },
    { text: shareText(row.rejected), tone: row.rejected > 0 ? "warn" : "dim" },
    msText(row.p95Ms),
    row.tokens === 0 ? "" : String(row.tokens),
    row.cost === 0 ? "" : `$${row.cost.toFixed(4)}`,
  ];
}

function shareText(share: number): string {
  if (share === 0) return "-";
  return share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`;
}

function nameOf({ route, mcp, llm, subject }: RequestRecord, kind: TopKind): string | undefined {
  if (kind === "route") return route ?? "(no route)";
  if (kind === "tool") {
    if (mcp?.method !== "tools/call") return undefined;
    return mcp.target === undefined ? (mcp.name ?? "?") : `${mcp.target}/${mcp.name ?? "?"}`;
  }
  if (kind === "model") return llm?.model;
  return subject ?? undefined;
}

function p95Of(durations: readonly number[]): number {
  const sorted = [...durations].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * 0.95))] ?? 0;
}
