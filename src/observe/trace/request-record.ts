/**
 * A finished request as `/debug/requests` shows it: client, target, policies, responder and failure. Plain data without
 * secrets, in the shape that gwctl and the web UI read.
 */
import type { JsonObject, Phase, TraceEvent } from "./events.ts";

export interface RequestRecord {
  /** Increases by one per request; `?since=` takes it. */
  readonly seq: number;
  /** The value of `x-request-id`. A client may choose it, so it is not necessarily unique. */
  readonly id: string;
  /** The time of arrival, RFC 3339. */
  readonly time: string;
  readonly durationMs: number;
  readonly listener: string;
  readonly route: string | null;
  readonly backend: string | null;
  readonly method: string;
  readonly host: string;
  /** The path from the client, without the query. */
  readonly path: string;
  /** The peer of the connection. `client` is the client's address, where trusted proxies report one. */
  readonly source: { readonly address: string; readonly port: number; readonly client?: string | undefined };
  readonly status: number | null;
  /** The responder; null if the connection ended before a response. */
  readonly answeredBy: "upstream" | "gateway" | null;
  readonly end: "complete" | "aborted" | "failed";
  readonly responseBytes: number;
  /** From the last backend attempt to its response head. */
  readonly upstreamMs: number | null;
  readonly subject: string | null;
  /** Read from the compact history, in which reasons, policy times and the backend are not stored. */
  readonly isShort?: true;
  readonly mcp?: {
    readonly method?: string;
    readonly target?: string;
    readonly name?: string;
    /** `ok`, `tool_error`, `rpc_error`, `denied`, `failed` or `cancelled`. */
    readonly outcome?: string;
  };
  readonly llm?: {
    readonly provider?: string;
    readonly model?: string;
    readonly inputTokens?: number;
    readonly outputTokens?: number;
    readonly cachedTokens?: number;
    readonly cost?: number;
  };
  readonly steps: readonly RecordedStep[];
  readonly failure?: RecordedFailure;
  /** Rejections that policies in shadow mode would have made. */
  readonly shadow?: readonly { readonly policy: string; readonly reason: string }[];
}

export interface RecordedStep {
  /** The part of the backend that the policy is attached to, for example `model fast`. */
  readonly of?: string;
  readonly phase: Phase;
  readonly policy: string;
  readonly verdict: "passed" | "answered" | "refused";
  readonly micros: number;
}

export interface RecordedFailure {
  readonly code: string;
  readonly source: "client" | "upstream" | "gateway";
  readonly message: string;
  readonly detail?: string;
}

/** One request in full, as `?id=` returns it. */
export interface RequestDetail extends RequestRecord {
  /** Describes the request in sentences. */
  readonly story: readonly string[];
  /** The request and the attributes that policies added, redacted. */
  readonly requestState: JsonObject;
  /** Present only if `config.tracing.keepFailed` is set and the request failed. */
  readonly trace?: readonly TraceEvent[];
}

export interface HistoryPoint {
  /** The start of the slot in milliseconds since the epoch. */
  readonly at: number;
  readonly requests: number;
  /** 5xx, or no complete response. */
  readonly failed: number;
  /** 4xx. */
  readonly rejected: number;
  readonly tokens: number;
  readonly cost: number;
  /** Null if there were no requests. */
  readonly p95Ms: number | null;
}

export interface HistoryReport {
  readonly slotSeconds: number;
  /** Oldest first, without gaps, at most back to the start of the process. */
  readonly points: readonly HistoryPoint[];
  /** Over the whole range. */
  readonly total: Omit<HistoryPoint, "at">;
}
