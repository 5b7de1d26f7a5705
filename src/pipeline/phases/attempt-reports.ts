/**
 * Records each request that a backend sends to a server, its response head or result, and its failure, and reports them
 * to the trace.
 */
import type { Clock } from "../../base/clock.ts";
import { Attempt, describeAttempt, type ServedModel } from "../../core/attempts.ts";
import type { Exchange } from "../../core/exchange.ts";
import { receivedState, requestState, sentState } from "../../core/snapshot.ts";
import type { Sent } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { bodyBytes, captureSentBody } from "../../record/recorded-bodies.ts";
import type { Redaction } from "../../record/trace/redact.ts";
import type { Trace } from "../../record/trace/trace.ts";

export interface AttemptReportEnv {
  readonly clock: Clock;
  readonly redaction: Redaction;
}

export function reportAttempt(
  exchange: Exchange,
  { clock, redaction }: AttemptReportEnv,
  target: string,
  sent: Sent | undefined,
  served: ServedModel | undefined,
): void {
  const { attempts, trace } = exchange;
  const attempt = new Attempt(target, clock.monotonicMs(), served);
  attempt.isReported = sent !== undefined && (sent.over === "stdio" || sent.isReported === true);
  attempt.spanId = exchange.records.spans?.attemptSpanId();
  attempts.add(attempt, sent?.over === "stdio" ? sent.hasResult : attempt.isReported);
  if (trace !== undefined) traceSent(exchange, trace, redaction, target, sent);
}

function traceSent(
  exchange: Exchange,
  trace: Trace,
  redaction: Redaction,
  target: string,
  sent: Sent | undefined,
): void {
  const { headers, body } = exchange.request;
  const state = sent ? sentState(exchange, target, sent, redaction) : requestState(exchange, redaction);
  trace.point({ type: "requestSnapshot", stage: "final request", requestState: state });
  trace.point({ type: "backendCallStart", target });
  if (sent === undefined) captureSentBody(trace, bodyBytes(body), headers.get("content-type"));
  else if (sent.over === "stdio") captureSentBody(trace, Buffer.from(sent.line), "application/json");
  else captureSentBody(trace, sent.request.body, sent.request.headers.get("content-type"));
}

/** Reports a response head or an MCP result. Without `target`, it is that of the last attempt. */
export function reportResponse(
  exchange: Exchange,
  env: AttemptReportEnv,
  status: number,
  headers: HeaderList,
  target?: string,
  nowMs = env.clock.monotonicMs(),
): void {
  const { attempts, trace, upstream } = exchange;
  const awaited = attempts.takeAwaited(target);
  const attempt = awaited ?? attempts.last;
  if (attempt !== undefined) attempt.status = status;
  reportResult(exchange, attempt, nowMs, target, undefined);
  if (trace !== undefined) {
    const times =
      awaited === undefined
        ? { startedMs: upstream.startedMs, headMs: upstream.headMs ?? nowMs }
        : { startedMs: awaited.startedMs, headMs: nowMs };
    const state = receivedState(exchange, status, headers, times, env.redaction, env.clock);
    trace.point({ type: "responseSnapshot", stage: "raw response", requestState: state });
  }
  releaseSnapshots(exchange);
}

/** Reports the head of the backend's response, unless the backend reports the responses of its servers itself. */
export function reportHead(
  exchange: Exchange,
  env: AttemptReportEnv,
  status: number,
  headers: HeaderList,
  nowMs?: number,
): void {
  const { last } = exchange.attempts;
  if (last !== undefined && !last.hasResult && !last.isReported)
    reportResponse(exchange, env, status, headers, undefined, nowMs);
}

/** Reports that a target did not respond. */
export function reportMiss(exchange: Exchange, env: AttemptReportEnv, reason: string, target: string): void {
  const { attempts } = exchange;
  const attempt = attempts.takeAwaited(target) ?? attempts.last;
  if (attempt !== undefined) reportResult(exchange, attempt, env.clock.monotonicMs(), target, reason);
  releaseSnapshots(exchange);
}

/** Reports the failure of the backend's call, which may not have reached a server. */
export function reportFailure(exchange: Exchange, env: AttemptReportEnv, reason: string): void {
  reportResult(exchange, exchange.attempts.last, env.clock.monotonicMs(), undefined, reason);
}

/** Reports that another attempt replaces the last one. */
export function reportRetry(exchange: Exchange, env: AttemptReportEnv, reason: string): void {
  const { attempts, trace } = exchange;
  const { last } = attempts;
  // A target that got no request, for example for want of a credential, follows an attempt that was replaced before.
  if (last === undefined || last.retryReason !== undefined) return;
  if (!last.hasResult) reportResult(exchange, last, env.clock.monotonicMs(), undefined, reason);
  last.retryReason = reason;
  const kind = last.provider === undefined ? "retry" : "failover";
  trace?.point({ type: "policyEvent", kind, details: { ...describeAttempt(last) } }, "warn");
}

function reportResult(
  { trace, upstream }: Exchange,
  attempt: Attempt | undefined,
  nowMs: number,
  target: string | undefined,
  error: string | undefined,
): void {
  if (attempt !== undefined) {
    attempt.resultMs = nowMs;
    attempt.error = error;
  }
  if (trace === undefined) return;
  const status = error === undefined ? (attempt?.status ?? null) : null;
  const severity = error !== undefined || (status ?? 0) >= 500 ? "error" : (status ?? 0) >= 400 ? "warn" : "info";
  const whose = target === undefined ? {} : { target };
  const startedMs = attempt?.startedMs ?? upstream.startedMs ?? nowMs;
  trace.span(startedMs, { type: "backendCallResult", status, error: error ?? null, ...whose }, severity);
}

function releaseSnapshots({ attempts, upstream }: Exchange): void {
  if (!attempts.areAwaited) upstream.releaseSnapshots();
}
