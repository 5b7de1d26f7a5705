/**
 * What is kept and counted of each request: its trace for whoever watches, the last requests, metrics, and the access
 * log. One place, so that each request is counted the same way everywhere.
 */

import type { Clock } from "../base/clock.ts";
import type { Exchange } from "../core/exchange.ts";
import { createTraceHub, type TraceHub } from "../observe/trace/hub.ts";
import { createKeptTraces, type KeptTraces } from "../observe/trace/kept-traces.ts";
import type { ListenersEnv } from "../pipeline/listen/listeners.ts";
import { type AccessLogCopy, compileAccessFields, createAccessLog } from "../pipeline/records/access-log.ts";
import type { Audit } from "../pipeline/records/audit.ts";
import { createFactRing, type FactRing } from "../pipeline/records/fact-ring.ts";
import { createMirrorRecords, type MirrorRecords } from "../pipeline/records/mirror-report.ts";
import { createRecentRequests, type RecentRequests } from "../pipeline/records/recent-requests.ts";
import { createRequestMetrics } from "../pipeline/records/request-metrics.ts";
import { createShadowRecords, type ShadowRecords } from "../pipeline/records/shadow-report.ts";
import { createTrafficHistory, type TrafficHistory } from "../pipeline/records/traffic-history.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import type { Loaded } from "./config-loader.ts";
import type { Services } from "./services.ts";

export interface RequestRecords extends Pick<ListenersEnv, "trace" | "settled" | "defect"> {
  readonly hub: TraceHub<Exchange>;
  readonly recent: RecentRequests;
  readonly shadow: ShadowRecords;
  readonly mirrors: MirrorRecords;
  readonly facts: FactRing;
  readonly history: TrafficHistory;
  /** Undefined unless `config.tracing.keepFailed` asks for it. */
  readonly kept: KeptTraces | undefined;
}

export function createRequestRecords(
  { clock, logger, metrics, unexpected }: Services,
  { process, redaction }: Loaded,
  telemetry: Omit<Telemetry, "close"> | undefined,
  audit: Audit | undefined,
  nextSeq?: () => number,
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
  const accessLog = createAccessLog(logger.for("access"), {
    copy: logCopy(clock, telemetry),
    own: process.logging?.access && compileAccessFields(process.logging.access, redaction),
  });
  const facts = createFactRing(redaction);
  const shadow = createShadowRecords(metrics, clock.now());
  const mirrors = createMirrorRecords(metrics, clock.now());
  const history = createTrafficHistory(clock);
  const countRequest = createRequestMetrics(metrics);
  return {
    hub,
    recent,
    shadow,
    mirrors,
    facts,
    history,
    kept,
    trace:
      telemetry === undefined && audit === undefined
        ? recent.begin
        : (exchange) => {
            telemetry?.begin(exchange);
            audit?.begin(exchange);
            return recent.begin(exchange);
          },
    settled(exchange, outcome) {
      const durationMs = clock.monotonicMs() - exchange.startedMs;
      if (!exchange.records.isQuiet) {
        countRequest(exchange, outcome, durationMs);
        history.count(exchange, outcome, durationMs);
        accessLog(exchange, outcome, durationMs);
        facts.note(exchange, outcome, durationMs);
      }
      if (exchange.records.spans !== undefined) telemetry?.settled(exchange, outcome);
      audit?.settled(exchange, outcome, durationMs);
      if (exchange.shadow.denials !== undefined || exchange.shadow.isPending) shadow.note(exchange);
      if (exchange.records.mirrored !== undefined) mirrors.note(exchange);
      recent.settled(exchange, outcome, durationMs);
    },
    defect: (exchange, error) => unexpected.report("request", error, { id: exchange.id, route: exchange.route }),
  };
}

function logCopy(clock: Clock, telemetry: Pick<Telemetry, "log"> | undefined): AccessLogCopy | undefined {
  const log = telemetry?.log;
  return (
    log &&
    ((level, fields, { records: { spans } }) => log({ level, name: "request", epochMs: clock.now(), fields, spans }))
  );
}
