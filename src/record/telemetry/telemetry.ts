/**
 * Samples requests, builds their spans when they end, and exports spans, metrics, and log records with OpenTelemetry.
 */

import type { Clock } from "../../base/clock.ts";
import type { IdSource } from "../../base/ids.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Logger } from "../log/logger.ts";
import type { MetricFamily, Metrics } from "../log/metrics.ts";
import type { RequestTelemetry } from "../request-records.ts";
import { formatTraceparent, parseTraceparent, RequestSpans, usableTracestate } from "../trace/live-records.ts";
import type { Redaction } from "../trace/redact.ts";
import {
  createExportCount,
  createExportQueue,
  createOtlpSenders,
  createResource,
  type ExportQueue,
  hrTime,
  logExport,
  metricExport,
  type ReadableLogRecord,
} from "./otlp-export.ts";
import { compileSpanAttributes, requestSpanList } from "./request-spans.ts";
import type { OtlpSettings, Signal } from "./settings.ts";
import { encodeSpan } from "./span-encoder.ts";

const SPAN_BYTES = 8;
/** The memory of a waiting span in addition to its bytes. */
const BUFFER_BYTES = 128;
/** The memory of a log record without its attributes. */
const RECORD_BYTES = 1_024;
/** Characters of Latin-1 texts need one byte, others two. */
const CHAR_BYTES = 2;

export interface TelemetryEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly redaction: Redaction;
  readonly ids: IdSource;
  readonly version: string;
  readonly hostName: string;
  /** All threads of a process have the same ID. */
  readonly instanceId: string;
  /** Returns the metrics of all threads. */
  collectMetrics(): Promise<readonly MetricFamily[]>;
  random(): number;
}

export interface Telemetry extends RequestTelemetry {
  close(limitMs: number): Promise<void>;
}

export function openTelemetry(settings: OtlpSettings, env: TelemetryEnv): Telemetry {
  const { clock, ids, redaction } = env;
  const resource = createResource({
    "service.name": "gateway",
    "service.version": env.version,
    "service.instance.id": env.instanceId,
    "host.name": env.hostName,
    "telemetry.sdk.language": "nodejs",
    ...settings.resource,
  });
  const senders = createOtlpSenders(settings, resource);
  const count = createCounters(env);
  const startTime = hrTime(clock.now());
  const spans: ExportQueue<Buffer> = createExportQueue({
    clock,
    bytesOf: ({ length }) => BUFFER_BYTES + length,
    send: senders.spans.send,
    ...count("traces"),
  });
  const logs: ExportQueue<ReadableLogRecord> = createExportQueue({
    clock,
    bytesOf: recordBytes,
    send: senders.logs.send,
    ...count("logs"),
  });
  const newSpanId = (): string => ids.hex(SPAN_BYTES);
  const added = settings.attributes && compileSpanAttributes(settings.attributes, redaction, env.metrics);
  const spanEnv = {
    redaction,
    newSpanId,
    added,
    removed: new Set(settings.removeAttributes),
  };

  const exportedMetrics = createExportCount(count("metrics"));
  let exporting: Promise<void> | undefined;
  const exportMetrics = (): Promise<void> => {
    const sent = (families: readonly MetricFamily[]): Promise<void> =>
      senders.metrics.send(metricExport(families, resource, startTime, hrTime(clock.now())));
    exporting ??= exportedMetrics(1, env.collectMetrics().then(sent)).finally(() => {
      exporting = undefined;
    });
    return exporting;
  };
  const hasMetrics = settings.signals.includes("metrics");
  const timer = hasMetrics ? clock.every(settings.metricsInterval, () => void exportMetrics()) : undefined;

  return {
    begin: createSampling(settings, env),
    reads: (path) => added?.reads(path) === true,
    settled(finished) {
      const { spans: noted } = finished.exchange.records;
      if (noted === undefined) return;
      for (const span of requestSpanList(spanEnv, finished, noted)) spans.add(encodeSpan(span));
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

function createCounters({ metrics, logger }: TelemetryEnv) {
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

// An unsampled request keeps the client's `traceparent` or gets a new unsampled one. A sampled request gets the
// `traceparent` of the gateway's span.

const TRACE_BYTES = 16;

function createSampling(
  { sampling, spans, signals }: Pick<OtlpSettings, "sampling" | "spans" | "signals">,
  { ids, random }: Pick<TelemetryEnv, "ids" | "random">,
): (exchange: Exchange) => void {
  const ratio = signals.includes("traces") ? (sampling?.ratio ?? 1) : 0;
  const followsClient = signals.includes("traces") && (sampling?.followClient ?? true);
  const isDetailed = spans === "all";
  const newSpanId = (): string => ids.hex(SPAN_BYTES);

  return (exchange) => {
    const { headers } = exchange.request;
    const sent = headers.get("traceparent");
    const parent = sent === undefined ? undefined : parseTraceparent(sent);
    const isSampled = parent !== undefined && followsClient ? parent.sampled : ratio >= 1 || random() < ratio;
    if (!isSampled && parent !== undefined) return;
    const traceId = parent?.traceId ?? ids.hex(TRACE_BYTES);
    // `tracestate` is part of the client's trace, and this is a new trace.
    if (parent === undefined && headers.has("tracestate")) headers.delete("tracestate");
    if (!isSampled) {
      exchange.traceparent = formatTraceparent({ traceId, spanId: newSpanId(), sampled: false });
      return;
    }
    const tracestate = usableTracestate(headers.getAll("tracestate").join(","));
    exchange.records.spans = new RequestSpans({
      traceId,
      spanId: newSpanId(),
      parentId: parent?.spanId,
      tracestate,
      isDetailed,
      steps: exchange.steps,
      newSpanId,
    });
  };
}

function recordBytes({ attributes }: ReadableLogRecord): number {
  let chars = 0;
  for (const [name, value] of Object.entries(attributes)) {
    chars += name.length;
    if (typeof value === "string") chars += value.length;
    else if (Array.isArray(value)) for (const item of value) chars += String(item).length;
  }
  return RECORD_BYTES + CHAR_BYTES * chars;
}
