/**
 * Computes request rate, failures, and latency from the gateway's records of recent requests.
 */
import { type RequestRecord, resultOf } from "../../observe/trace/request-record.ts";

const WINDOW_MS = 60_000;
const MIN_WINDOW_MS = 1_000;

export interface Traffic {
  readonly windowMs: number;
  readonly requests: number;
  readonly perSecond: number;
  readonly failed: number;
  readonly rejected: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly tokens: number;
  readonly cost: number;
}

export function trafficOf(records: readonly RequestRecord[], nowMs: number, upMs: number, isAll: boolean): Traffic {
  const recent = records.filter(({ time }) => Date.parse(time) >= nowMs - WINDOW_MS);
  const oldest = records.reduce((least, { time }) => Math.min(least, Date.parse(time)), nowMs);
  const reachMs = isAll ? upMs : nowMs - oldest;
  const windowMs = Math.max(MIN_WINDOW_MS, Math.min(WINDOW_MS, reachMs));
  const durations = recent.map(({ durationMs }) => durationMs).sort((a, b) => a - b);
  const results = recent.map(resultOf);
  return {
    windowMs,
    requests: recent.length,
    perSecond: (recent.length * 1000) / windowMs,
    failed: results.filter((result) => result === "failed").length,
    rejected: results.filter((result) => result === "rejected").length,
    p50Ms: quantile(durations, 0.5),
    p95Ms: quantile(durations, 0.95),
    tokens: sum(recent, ({ llm }) => (llm?.inputTokens ?? 0) + (llm?.outputTokens ?? 0)),
    cost: sum(recent, ({ llm }) => llm?.cost ?? 0),
  };
}

export function requestText({ method, path, mcp, llm }: RequestRecord): string {
  if (mcp?.method !== undefined) return `${mcp.method}${mcp.name === undefined ? "" : ` ${mcp.name}`}`;
  return `${method} ${path}${llm?.model === undefined ? "" : ` ${llm.model}`}`;
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function sum(records: readonly RequestRecord[], of: (record: RequestRecord) => number): number {
  return records.reduce((total, record) => total + of(record), 0);
}
