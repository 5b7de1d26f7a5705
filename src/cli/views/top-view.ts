/**
 * Who uses the gateway most, from the requests that ended lately: by route, MCP tool, model and key. Pure: records go in,
 * a screen comes out.
 */
import type { RequestRecord } from "../../trace/request-record.ts";
import type { Paint } from "../terminal/paint.ts";
import { type Cell, table } from "../terminal/table.ts";
import { isBroken, isFailed } from "./traffic.ts";
import { msText } from "./units.ts";

export type TopKind = "route" | "tool" | "model" | "key";

export const TOP_KINDS: readonly TopKind[] = ["route", "tool", "model", "key"];

/** Records of one look at the gateway; each stands for `weight` requests if there were more than it tells. */
export interface Look {
  readonly atMs: number;
  readonly weight: number;
  readonly records: readonly RequestRecord[];
}

export interface TopRow {
  readonly name: string;
  readonly perSecond: number;
  readonly requests: number;
  /** Shares of the requests, 0 to 1. */
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

/** Busiest first. */
export function topRows(looks: readonly Look[], kind: TopKind, windowMs: number): TopRow[] {
  const sums = new Map<string, Sums>();
  for (const { weight, records } of looks)
    for (const record of records) {
      const name = nameOf(record, kind);
      if (name === undefined) continue;
      const sum = sums.get(name) ?? { requests: 0, failed: 0, rejected: 0, tokens: 0, cost: 0, durations: [] };
      sums.set(name, sum);
      sum.requests += weight;
      if (isBroken(record)) sum.failed += weight;
      else if (isFailed(record)) sum.rejected += weight;
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

/** One table per kind that has anything to show. */
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
  return share < 0.01 ? "<1 %" : `${Math.round(share * 100)} %`;
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
