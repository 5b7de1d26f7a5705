/**
 * OpenTelemetry for one process: decides which requests are traced, builds their spans when they end, and exports spans,
 * metrics and log records. Loaded only where `config.telemetry.otlp` is set. A collector that is slow or gone costs
 * dropped records, which are counted, and never a request.
 */
import type { Exchange } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import type { Logger } from "../lib/log/logger.ts";
import type { Metrics } from "../lib/log/metrics.ts";
import type { Clock } from "../lib/process/clock.ts";
import type { IdSource } from "../lib/text/ids.ts";
import type { Redaction } from "../trace/redact.ts";
import { createExportQueue, type ExportQueue } from "./export-queue.ts";
import { type LogEntry, logExport } from "./log-export.ts";
import { metricExport } from "./metric-export.ts";
import { createOtlpSenders } from "./otlp-senders.ts";
import { requestSpanList } from "./request-span-list.ts";
import { createSampling } from "./sampling.ts";
import type { OtlpSettings, Signal } from "./settings.ts";
import { createResource, hrTime, type ReadableLogRecord, type ReadableSpan } from "./signals.ts";

const SPAN_BYTES = 8;

export interface TelemetryEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly redaction: Redaction;
  readonly ids: IdSource;
  readonly version: string;
  readonly hostName: string;
  random(): number;
}

export interface Telemetry {
  /** A request arrives: whether it is traced is decided now. */
  begin(exchange: Exchange): void;
  settled(exchange: Exchange, outcome: Outcome): void;
  /** Undefined where log records are not exported. */
  readonly log: ((entry: LogEntry) => void) | undefined;
  /** Sends what waits, within the limit. */
  close(limitMs: number): Promise<void>;
}

export function openTelemetry(settings: OtlpSettings, env: TelemetryEnv): Telemetry {
  const { clock, ids, redaction, metrics } = env;
  const senders = createOtlpSenders(settings);
  const resource = createResource({
    "service.name": "gateway",
    "service.version": env.version,
    "service.instance.id": ids.hex(SPAN_BYTES),
    "host.name": env.hostName,
    "telemetry.sdk.language": "nodejs",
    ...settings.resource,
  });
  const count = countersOf(env);
  const startTime = hrTime(clock.now());
  const spans: ExportQueue<ReadableSpan> = createExportQueue({
    clock,
    send: senders.spans.send,
    ...count("traces"),
  });
  const logs: ExportQueue<ReadableLogRecord> = createExportQueue({ clock, send: senders.logs.send, ...count("logs") });
  const newSpanId = (): string => ids.hex(SPAN_BYTES);
  const spanEnv = { redaction, resource, newSpanId };

  const metricCounts = count("metrics");
  let isFailing = false;
  let exporting: Promise<void> | undefined;
  const exportMetrics = (): Promise<void> => {
    exporting ??= senders.metrics
      .send(metricExport(metrics.collect(), resource, startTime, hrTime(clock.now())))
      .then(
        () => {
          metricCounts.exported(1);
          if (isFailing) metricCounts.changed(undefined);
          isFailing = false;
        },
        (error: Error) => {
          metricCounts.dropped(1, "export_failed");
          if (!isFailing) metricCounts.changed(error);
          isFailing = true;
        },
      )
      .finally(() => {
        exporting = undefined;
      });
    return exporting;
  };
  const hasMetrics = settings.signals.includes("metrics");
  const timer = hasMetrics ? clock.every(settings.metricsInterval, () => void exportMetrics()) : undefined;

  return {
    begin: createSampling(settings, env),
    settled(exchange, outcome) {
      const { spans: noted } = exchange;
      if (noted === undefined) return;
      for (const span of requestSpanList(spanEnv, exchange, noted, outcome, clock.monotonicMs())) spans.add(span);
    },
    log: settings.signals.includes("logs") ? (entry) => logs.add(logExport(entry, resource)) : undefined,
    async close(limitMs) {
      timer?.cancel();
      const limit = new Promise<void>((resolve) => {
        clock.after(limitMs, resolve);
      });
      const last = hasMetrics ? Promise.race([exportMetrics(), limit]) : undefined;
      await Promise.all([spans.close(limitMs), logs.close(limitMs), last]);
      for (const sender of Object.values(senders)) sender.close();
    },
  };
}

function countersOf({ metrics, logger }: TelemetryEnv) {
  const exported = metrics.counter(
    "gateway_otlp_exported_total",
    "Spans, log records and metric exports that a collector accepted.",
    ["signal"],
  );
  const dropped = metrics.counter(
    "gateway_otlp_dropped_total",
    "Spans, log records and metric exports that were dropped: the queue was full, or the export failed.",
    ["signal", "reason"],
  );
  return (signal: Signal) => ({
    exported: (count: number) => exported.labels(signal).add(count),
    dropped: (count: number, reason: string) => dropped.labels(signal, reason).add(count),
    changed: (failure: Error | undefined) =>
      failure === undefined
        ? logger.info("OTLP export works again", { signal })
        : logger.warn("OTLP export failed; records are dropped until it works again", {
            signal,
            reason: failure.message,
          }),
  });
}
