/**
 * Formats the traffic that the gateway counted.
 */
import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import type { RequestRecord } from "../../record/trace/record.ts";
import { type HistoryReport, perSecond } from "../../record/trace/traffic-numbers.ts";
import type { AdminClient } from "../instance/admin-client.ts";

/** The gateway adds up to a minute, so that the window begins with a slot of its statistics. */
export const TRAFFIC_SECONDS = 60;

export interface Traffic {
  readonly windowMs: number;
  readonly requests: number;
  readonly perSecond: number;
  readonly failed: number;
  readonly rejected: number;
  readonly aborted: number;
  readonly p50Ms: number | null;
  readonly p95Ms: number | null;
  readonly tokens: number;
  readonly cost: number;
}

export async function readTraffic(admin: AdminClient): Promise<Traffic> {
  const { total, windowSeconds } = await admin.json<HistoryReport>(
    `${ADMIN_PATHS.history}?seconds=${TRAFFIC_SECONDS}`,
    "total",
  );
  const { requests, failed, rejected, aborted, p50Ms, p95Ms, tokens, cost } = total;
  return {
    windowMs: Math.round(windowSeconds * 1000),
    requests,
    perSecond: perSecond(total, windowSeconds),
    failed,
    rejected,
    aborted,
    p50Ms,
    p95Ms,
    tokens,
    cost,
  };
}

/** The window is one to two minutes long, and rates refer to all of it, so the seconds are shown. */
export function windowText({ windowMs }: { readonly windowMs: number }): string {
  return `${Math.round(windowMs / 1000)} s`;
}

export function requestText({ method, path, mcp, llm }: RequestRecord): string {
  if (mcp?.method !== undefined) return `${mcp.method}${mcp.name === undefined ? "" : ` ${mcp.name}`}`;
  return `${method} ${path}${llm?.model === undefined ? "" : ` ${llm.model}`}`;
}
