/**
 * One finished request as `/debug/requests` shows it: who asked for what, which policies looked at it, who answered,
 * and why not. Pure data, without secrets; the shape that gwctl and the web UI read.
 */
import type { JsonObject, Phase, TraceEvent } from "./events.ts";

export interface RequestRecord {
  /** Counts up by one per request; `?since=` takes it. */
  readonly seq: number;
  /** The value of `x-request-id`. A client may choose it, so it need not be unique. */
  readonly id: string;
  /** Arrival, RFC 3339. */
  readonly time: string;
  readonly durationMs: number;
  readonly listener: string;
  readonly route: string | null;
  readonly backend: string | null;
  readonly method: string;
  readonly host: string;
  /** As the client sent it, without the query. */
  readonly path: string;
  /** The peer of the connection. `client`: the client's address, where trusted proxies report one. */
  readonly source: { readonly address: string; readonly port: number; readonly client?: string | undefined };
  readonly status: number | null;
  /** Who answered; null when the connection ended before anybody could. */
  readonly answeredBy: "upstream" | "gateway" | null;
  readonly end: "complete" | "aborted" | "failed";
  readonly responseBytes: number;
  /** From the last call of the backend to its response head. */
  readonly upstreamMs: number | null;
  readonly subject: string | null;
  /** Read from what is kept longest: reasons, times of policies and the backend are no longer known. */
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
  /** What policies in shadow mode would have denied. */
  readonly shadow?: readonly { readonly policy: string; readonly reason: string }[];
}

export interface RecordedStep {
  /** What the policy stands on inside of the backend, for example `model fast`. */
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

/** One request in full, as `?id=` answers. */
export interface RequestDetail extends RequestRecord {
  /** What happened, in sentences. */
  readonly story: readonly string[];
  /** The request and what policies found out about it, redacted. */
  readonly requestState: JsonObject;
  /** Only where `config.tracing.keepFailed` is set and the request failed. */
  readonly trace?: readonly TraceEvent[];
}

export interface HistoryPoint {
  /** Begin of the slot, milliseconds since the epoch. */
  readonly at: number;
  readonly requests: number;
  /** 5xx, or no complete response. */
  readonly failed: number;
  /** 4xx. */
  readonly rejected: number;
  readonly tokens: number;
  readonly cost: number;
  /** Null without requests. */
  readonly p95Ms: number | null;
}

export interface HistoryReport {
  readonly slotSeconds: number;
  /** Oldest first, without gaps, back to the start of the process at most. */
  readonly points: readonly HistoryPoint[];
  /** Over the whole range. */
  readonly total: Omit<HistoryPoint, "at">;
}
