/**
 * Defines the trace events of spec 6 as data. gwctl and the web UI import this file, so it must not import code of the
 * gateway.
 */

export type RequestStage = "initial request" | "gateway policies" | "route policies" | "final request";
export type ResponseStage = "raw response" | "backend response ready" | "final response";
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
