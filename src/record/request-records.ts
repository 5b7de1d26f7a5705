/**
 * Begins the records of a request, and passes its end to every output: metrics, the access log, the request history, the
 * audit log, and spans.
 */
import type { Clock } from "../base/clock.ts";
import type { Exchange } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import {
  type AccessFields,
  type AccessLogCopy,
  type AccessSettings,
  compileAccessFields,
  createAccessLog,
} from "./access-log.ts";
import type { Audit } from "./audit.ts";
import { FinishedRequest } from "./finished-request.ts";
import type { HistoryRecorder } from "./history-record.ts";
import type { LogFields, Logger, UnexpectedErrors } from "./log/logger.ts";
import type { Metrics } from "./log/metrics.ts";
import { createMirrorRecords, createShadowRecords, type MirrorRecords, type ShadowRecords } from "./policy-reports.ts";
import { createRecentRequests, type RecentRequests } from "./recent-requests.ts";
import { recordCompletion, recordPrompt } from "./recorded-bodies.ts";
import { createRequestHistory, type RequestHistory } from "./recorded-request.ts";
import { createRequestMetrics } from "./request-metrics.ts";
import type { RequestSpans } from "./trace/live-records.ts";
import type { Redaction } from "./trace/redact.ts";
import { createKeptTraces, createTraceHub, type KeptTraces, type Trace, type TraceHub } from "./trace/trace.ts";
import { createTrafficHistory, type TrafficHistory } from "./traffic.ts";

interface RecordServices {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly unexpected: UnexpectedErrors;
}

interface RecordSettings {
  readonly process: {
    readonly tracing?: { readonly keepFailed?: { readonly maxBytes: number } | undefined } | undefined;
    readonly logging?: { readonly access?: AccessSettings | undefined } | undefined;
  };
  readonly redaction: Redaction;
}

export interface LogEntry {
  readonly level: "info" | "warn";
  readonly name: string;
  readonly epochMs: number;
  readonly fields: LogFields;
  readonly spans: RequestSpans | undefined;
}

/** The OpenTelemetry export, which is loaded only if it is configured. */
export interface RequestTelemetry {
  begin(exchange: Exchange): void;
  settled(finished: FinishedRequest): void;
  /** Returns whether a configured span attribute reads this CEL attribute. */
  reads(path: string): boolean;
  /** The function is undefined if log records are not exported. */
  readonly log: ((entry: LogEntry) => void) | undefined;
}

export interface RequestRecords {
  /** Begins the records of a request, and returns its trace if it has one. */
  trace(exchange: Exchange): Trace | undefined;
  /** Called once for each request, when it has ended. */
  settled(exchange: Exchange, outcome: Outcome): void;
  /** Reports an exception that a request caused. */
  defect(exchange: Exchange, error: unknown): void;
  readonly hub: TraceHub<Exchange>;
  readonly recent: RecentRequests;
  readonly shadow: ShadowRecords;
  readonly mirrors: MirrorRecords;
  readonly requestHistory: RequestHistory;
  readonly history: TrafficHistory;
  /** The value is undefined unless `config.tracing.keepFailed` is set. */
  readonly kept: KeptTraces | undefined;
}

interface RecordOptions {
  nextSeq?(): number;
  readonly recorder?: HistoryRecorder | undefined;
}

export function createRequestRecords(
  { clock, logger, metrics, unexpected }: RecordServices,
  { process, redaction }: RecordSettings,
  telemetry: RequestTelemetry | undefined,
  audit: Audit | undefined,
  { nextSeq, recorder }: RecordOptions = {},
): RequestRecords {
  const hub = createTraceHub<Exchange>();
  const keepFailed = process.tracing?.keepFailed;
  const kept = keepFailed && createKeptTraces(keepFailed.maxBytes);
  const recent = createRecentRequests({
    clock,
    redaction,
    watcher: (exchange) => hub.take(exchange),
    kept,
    ...(nextSeq ? { nextSeq } : {}),
  });
  const own = process.logging?.access && compileAccessFields(process.logging.access, redaction);
  const accessLog = createAccessLog(logger.for("access"), logCopy(clock, telemetry), own);
  const needsPrompt = neededBy("llm.prompt", own, telemetry);
  const needsCompletion = neededBy("llm.completion", own, telemetry);
  const requestHistory = createRequestHistory(redaction);
  const shadow = createShadowRecords(metrics, clock.now());
  const mirrors = createMirrorRecords(metrics, clock.now());
  const history = createTrafficHistory(clock);
  const countRequest = createRequestMetrics(metrics);
  return {
    hub,
    recent,
    shadow,
    mirrors,
    requestHistory,
    history,
    kept,
    trace:
      telemetry === undefined && audit === undefined && needsCompletion === undefined
        ? recent.begin
        : (exchange) => {
            telemetry?.begin(exchange);
            audit?.begin(exchange);
            if (needsCompletion?.(exchange)) recordCompletion(exchange);
            return recent.begin(exchange);
          },
    settled(exchange, outcome) {
      const finished = new FinishedRequest(exchange, outcome, clock.monotonicMs() - exchange.startedMs, redaction);
      if (needsPrompt?.(exchange)) recordPrompt(exchange);
      if (!exchange.records.isQuiet) {
        accessLog(finished);
        countRequest(finished);
        history.count(finished);
        requestHistory.note(finished);
        recorder?.(finished);
      }
      if (exchange.records.spans !== undefined) telemetry?.settled(finished);
      audit?.settled(finished);
      if (exchange.shadow.denials !== undefined || exchange.shadow.isPending) shadow.note(finished);
      if (exchange.records.mirrored !== undefined) mirrors.note(exchange);
      recent.settled(finished);
    },
    defect: (exchange, error) => unexpected.report("request", error, { id: exchange.id, route: exchange.route }),
  };
}

/** Returns undefined if no record reads the attribute. Span attributes are evaluated only for sampled requests. */
function neededBy(
  path: string,
  own: AccessFields | undefined,
  telemetry: Pick<RequestTelemetry, "reads"> | undefined,
): ((exchange: Exchange) => boolean) | undefined {
  if (own?.reads(path)) return () => true;
  return telemetry?.reads(path) ? ({ records }) => records.spans !== undefined : undefined;
}

function logCopy(clock: Clock, telemetry: Pick<RequestTelemetry, "log"> | undefined): AccessLogCopy | undefined {
  const log = telemetry?.log;
  return (
    log &&
    ((level, fields, { records: { spans } }) => log({ level, name: "request", epochMs: clock.now(), fields, spans }))
  );
}
