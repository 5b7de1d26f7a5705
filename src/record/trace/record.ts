/**
 * Defines the trace events of spec 6, and a finished request in the format of `/debug/requests`. gwctl and the web UI
 * import this file, so it must not import code of the gateway.
 */

export type RequestStage = "initial request" | "gateway policies" | "route policies" | "final request";
type ResponseStage = "raw response" | "backend response ready" | "final response";
export type BodyStage = "final request" | "response";
export type Phase = "gateway" | "route" | "backend";
export type Severity = "info" | "warn" | "error";
export type PolicyMoment = "request" | "admit" | "parsed" | "admitParsed" | "llmRequest" | "response";

/** Represents a JSON object whose contents are not part of the contract (spec 2.7). */
export type JsonObject = { readonly [key: string]: unknown };

export type TraceMessage =
  | { readonly type: "requestStarted" }
  | { readonly type: "requestSnapshot"; readonly stage: RequestStage; readonly requestState: JsonObject }
  | {
      readonly type: "policySelection";
      readonly phase: Phase;
      readonly effectivePolicy: JsonObject;
      readonly of?: string;
    }
  | {
      readonly type: "routeSelection";
      readonly selectedRoute: string | null;
      readonly evaluatedRoutes: readonly string[];
    }
  | { readonly type: "backendCallStart"; readonly target: string }
  | { readonly type: "bodySnapshot"; readonly stage: BodyStage; readonly body: string; readonly truncated?: true }
  | {
      readonly type: "backendCallResult";
      readonly status: number | null;
      readonly error: string | null;
      readonly target?: string;
    }
  | { readonly type: "responseSnapshot"; readonly stage: ResponseStage; readonly requestState: JsonObject }
  | { readonly type: "requestFinished"; readonly status: number | null; readonly error: string | null }
  /**
   * Extends spec 6 with the result of a policy. `details` is the reason for a rejection, or the effect of the policy.
   */
  | {
      readonly type: "policy";
      readonly phase: Phase;
      /** Names the part of the backend that the policy is attached to, for example `model fast`. */
      readonly of?: string;
      readonly kind: string;
      readonly moment?: PolicyMoment;
      readonly result: "applied" | "skipped" | "answered" | "refused";
      readonly details?: string;
    }
  /** Extends spec 6 with an expression and its result. */
  | { readonly type: "cel"; readonly expression: string; readonly result: CelOutcome }
  /** Extends spec 6 with a report of a policy or backend, for example the MCP method and target. */
  | { readonly type: "policyEvent"; readonly kind: string; readonly details: JsonObject };

export type CelOutcome = { readonly value: unknown } | { readonly error: string };

export interface TraceEvent {
  /** Times are in microseconds since the start of the trace. A point event has no start. */
  readonly eventStart: number | null;
  readonly eventEnd: number;
  readonly severity: Severity;
  readonly message: TraceMessage;
  /** Present only if one stream carries several requests (`?count=`). */
  readonly requestId?: string;
}

export interface RequestRecord {
  /** `?since=` takes this number, which increases by one per request. It is -1 if `isShort` is set. */
  readonly seq: number;
  /** A client may choose the `x-request-id`, so it is not necessarily unique. */
  readonly id: string;
  /** The arrival time is in RFC 3339 format. */
  readonly time: string;
  readonly durationMs: number;
  readonly listener: string;
  readonly route: string | null;
  readonly backend: string | null;
  readonly method: string;
  readonly host: string;
  readonly path: string;
  /** `address` is the peer of the connection. `client` is set if a trusted proxy reports the client's address. */
  readonly source: { readonly address: string; readonly port: number; readonly client?: string | undefined };
  readonly status: number | null;
  /** The value is null if the connection ended before a response, or if the source of the record does not store it. */
  readonly answeredBy: "upstream" | "gateway" | null;
  readonly end: "complete" | "aborted" | "failed";
  readonly responseBytes: number;
  readonly upstreamMs: number | null;
  readonly subject: string | null;
  /** True if the source of the record does not store all fields, for example the durations of policies. */
  readonly isShort?: true;
  readonly mcp?: {
    readonly method?: string;
    readonly target?: string;
    readonly name?: string;
    /** The short ID of the session, as `/debug/tasks` shows it. */
    readonly session?: string;
    /** The value is `ok`, `tool_error`, `rpc_error`, `denied`, `failed`, or `cancelled`. */
    readonly outcome?: string;
  };
  readonly llm?: {
    readonly provider?: string;
    readonly model?: string;
    readonly inputTokens?: number;
    readonly outputTokens?: number;
    readonly cachedTokens?: number;
    readonly cost?: number;
    /** Lists the client's parameters that were omitted, because the provider does not support them. */
    readonly dropped?: readonly string[];
  };
  readonly steps: readonly RecordedStep[];
  /** The attempts, oldest first, if there was more than one, for example because of a retry or a failover. */
  readonly attempts?: readonly RecordedAttempt[];
  /** The limit with the smallest remaining share of each policy, and each budget, after the request was charged. */
  readonly limits?: readonly RecordedLimit[];
  readonly failure?: RecordedFailure;
  /** The rules of the authorization policy that rejected the request. */
  readonly rules?: readonly RecordedRule[];
  readonly shadow?: readonly { readonly policy: string; readonly reason: string }[];
}

export interface RecordedStep {
  /** Names the part of the backend that the policy is attached to, for example `model fast`. */
  readonly of?: string;
  readonly phase: Phase;
  readonly policy: string;
  readonly verdict: "passed" | "answered" | "refused";
  readonly micros: number;
}

export interface RecordedAttempt {
  /** The address of the server. */
  readonly target: string;
  readonly provider?: string;
  readonly model?: string;
  /** Null if the server did not respond. */
  readonly status: number | null;
  readonly error?: string;
  /** The time until the response head, the MCP result, or the failure. Null if there was none. */
  readonly durationMs: number | null;
  /** Explains why another attempt followed. */
  readonly retryReason?: string;
}

export interface RecordedRule {
  readonly kind: "allow" | "deny" | "require";
  readonly rule: string;
  /** A `deny` rule is met if it is false. */
  readonly isMet: boolean;
  /** Names the values that the rule read or did not find. */
  readonly values?: string;
}

export interface RecordedLimit {
  /** For example `3 requests per second` or `budget team`. */
  readonly limit: string;
  /** For example `1 of 3`. */
  readonly remaining: string;
  readonly resetSeconds: number;
}

interface RecordedFailure {
  readonly code: string;
  readonly source: "client" | "upstream" | "gateway";
  readonly message: string;
  readonly detail?: string | undefined;
}

/**
 * `rejected`: a rule, a limit, or an invalid request, and every other response with a 4xx status. `failed`: the gateway
 * or a server behind it. `aborted`: the client disconnected before the response was complete.
 */
export type RequestResult = "ok" | "rejected" | "failed" | "aborted";

interface ResultSource {
  /** The value is null if no response was sent. */
  readonly status: number | null;
  readonly end: RequestRecord["end"];
  readonly failure?: Pick<RecordedFailure, "source"> | undefined;
  readonly mcp?: { readonly outcome?: string | undefined } | undefined;
}

/** All views take the result of a request from here. */
export function resultOf({ status, end, failure, mcp }: ResultSource): RequestResult {
  if (status !== null && status >= 400) return status >= 500 ? "failed" : "rejected";
  // A stream can be rejected, and an MCP call can fail, inside a response with status 200.
  if (failure !== undefined) return failure.source === "client" ? "rejected" : "failed";
  if (end !== "complete") return end;
  if (status === null) return "failed";
  const outcome = mcp?.outcome ?? "ok";
  if (outcome === "denied") return "rejected";
  return outcome === "ok" || outcome === "cancelled" ? "ok" : "failed";
}

export interface RequestDetail extends RequestRecord {
  readonly story: readonly string[];
  readonly requestState: JsonObject;
  /** Present only if `config.tracing.keepFailed` is set and the request failed. */
  readonly trace?: readonly TraceEvent[];
}
