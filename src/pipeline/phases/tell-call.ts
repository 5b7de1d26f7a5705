/**
 * What is told of a request when it begins, and of a call to a backend before it is made: to the backend (where its spans
 * belong), to the spans, the audit trail and the trace. Throws if the audit trail is required and cannot be written.
 */

import type { Clock } from "../../base/clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { CompiledScope } from "../../core/policy.ts";
import type { PipelineEnv } from "./pipeline-env.ts";

export function tellStart(exchange: Exchange, env: Pick<PipelineEnv, "trace" | "redaction">): void {
  exchange.trace = env.trace(exchange);
  // A transformation may copy a credential, and another policy may remove the original.
  if (exchange.trace) exchange.credentials.secrets = env.redaction.secrets(exchange.request.headers.pairs);
  exchange.trace?.point({ type: "requestStarted" });
}

/** What the backend's own spans hang on. */
export function tellTraceparent(
  { records: { spans }, traceparent, request }: Exchange,
  protocol: "http" | "mcp" | "llm",
): void {
  const told = spans?.nextCall(protocol) ?? traceparent;
  if (told !== undefined) request.headers.set("traceparent", told);
}

export function tellCall({ records: { audit, spans }, facts, trace }: Exchange, clock: Clock): void {
  spans?.called(clock.monotonicMs());
  if (facts.backend?.protocol !== "http") audit?.check();
  if (trace && facts.mcp) trace.point({ type: "policyEvent", kind: "mcp", details: { ...facts.mcp } });
  if (trace && facts.a2a) trace.point({ type: "policyEvent", kind: "a2a", details: { ...facts.a2a } });
  if (trace && facts.llm) trace.point({ type: "policyEvent", kind: "llm", details: { ...facts.llm } });
}

export function tellPolicies({ trace }: Exchange, { phase, of, effectivePolicy }: CompiledScope): void {
  trace?.point({ type: "policySelection", phase, effectivePolicy, ...(of === undefined ? {} : { of }) });
}
