/**
 * Traffic numbers from recent requests: rate, failures and latency. Computed from the records of the gateway, so that
 * one request is enough.
 */
import type { RequestRecord } from "../../observe/trace/request-record.ts";

const WINDOW_MS = 60_000;
/** The minimum period, so that a single request does not look like a burst. */
const MIN_WINDOW_MS = 1_000;

export interface Traffic {
  /** The period that the numbers cover: one minute, or less if the records are shorter. */
  readonly windowMs: number;
  readonly requests: number;
  readonly perSecond: number;
  /** Responses with status 5xx, or incomplete ones. */
  readonly failed: number;
  /** Responses with status 4xx. */
  readonly rejected: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly tokens: number;
  readonly cost: number;
}

/** `isAll`: the records reach back to the start of the gateway, so a short list means little traffic. */
export function trafficOf(records: readonly RequestRecord[], nowMs: number, upMs: number, isAll: boolean): Traffic {
  const recent = records.filter(({ time }) => Date.parse(time) >= nowMs - WINDOW_MS);
  const oldest = records.reduce((least, { time }) => Math.min(least, Date.parse(time)), nowMs);
  const reachMs = isAll ? upMs : nowMs - oldest;
  const windowMs = Math.max(MIN_WINDOW_MS, Math.min(WINDOW_MS, reachMs));
  const durations = recent.map(({ durationMs }) => durationMs).sort((a, b) => a - b);
  const failed = recent.filter(isBroken).length;
  return {
    windowMs,
    requests: recent.length,
    perSecond: (recent.length * 1000) / windowMs,
    failed,
    rejected: recent.filter((record) => isFailed(record) && !isBroken(record)).length,
    p50Ms: quantile(durations, 0.5),
    p95Ms: quantile(durations, 0.95),
    tokens: sum(recent, ({ llm }) => (llm?.inputTokens ?? 0) + (llm?.outputTokens ?? 0)),
    cost: sum(recent, ({ llm }) => llm?.cost ?? 0),
  };
}

/**
 * True if the request was rejected, the response is incomplete, or a tool call failed inside a response with status
 * 200.
 */
export function isFailed({ failure, end, status, mcp }: RequestRecord): boolean {
  if (failure !== undefined || end !== "complete" || (status ?? 0) >= 400) return true;
  return mcp?.outcome !== undefined && mcp.outcome !== "ok" && mcp.outcome !== "cancelled";
}

export function isBroken({ end, status }: RequestRecord): boolean {
  return status === null || status >= 500 || end === "failed";
}

/** A short description of the request. */
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
