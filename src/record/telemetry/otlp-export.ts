/**
 * Converts metrics and log records to the input of the official OpenTelemetry serializers, and exports signals with the
 * official exporters, over HTTP/1.1 or gRPC. Each signal has a bounded queue, and dropped records are counted.
 */
import type { IOtlpExportDelegate } from "@opentelemetry/otlp-exporter-base";
import { createOtlpHttpExportDelegate, httpAgentFactoryFromOptions } from "@opentelemetry/otlp-exporter-base/node-http";
import {
  createEmptyMetadata,
  createInsecureCredentials,
  createOtlpGrpcExportDelegate,
  createSslCredentials,
} from "@opentelemetry/otlp-grpc-exporter-base";
import {
  type ISerializer,
  LogsExporterMetricsHelper,
  MetricsExporterMetricsHelper,
  ProtobufLogsSerializer,
  ProtobufMetricsSerializer,
  ProtobufTraceSerializer,
  TraceExporterMetricsHelper,
} from "@opentelemetry/otlp-transformer";
import type { Clock, Timer } from "../../base/clock.ts";
import type { MetricFamily, MetricPoint } from "../log/metrics.ts";
import type { LogEntry } from "../request-records.ts";
import type { OtlpSettings } from "./settings.ts";
import { createTraceRequests } from "./span-encoder.ts";

type Serialized<Serializer extends { serializeRequest(request: never): unknown }> = Parameters<
  Serializer["serializeRequest"]
>[0];

type ReadableSpan = Serialized<typeof ProtobufTraceSerializer>[number];
export type ReadableLogRecord = Serialized<typeof ProtobufLogsSerializer>[number];
type ResourceMetrics = Serialized<typeof ProtobufMetricsSerializer>;
export type Resource = ReadableSpan["resource"];
type HrTime = ReadableSpan["startTime"];

export const SCOPE = { name: "gateway" } as const;

const SAMPLED = 1;

export function createResource(attributes: Readonly<Record<string, string>>): Resource {
  const resource: Resource = {
    asyncAttributesPending: false,
    attributes,
    merge: () => resource,
    getRawAttributes: () => Object.entries(attributes),
  };
  return resource;
}

export function hrTime(epochMs: number): HrTime {
  const seconds = Math.floor(epochMs / 1000);
  return [seconds, Math.round((epochMs - seconds * 1000) * 1e6)];
}

const SEVERITY = { info: 9, warn: 13, error: 17 } as const;

export function logExport({ level, name, epochMs, fields, spans }: LogEntry, resource: Resource): ReadableLogRecord {
  const attributes: Record<string, string | number | boolean | string[]> = {};
  for (const [key, value] of Object.entries(fields)) {
    if (value === undefined || value === null) continue;
    attributes[key] = Array.isArray(value) ? [...value] : (value as string | number | boolean);
  }
  return {
    hrTime: hrTime(epochMs),
    hrTimeObserved: hrTime(epochMs),
    severityNumber: SEVERITY[level],
    severityText: level.toUpperCase(),
    body: name,
    attributes,
    resource,
    instrumentationScope: SCOPE,
    droppedAttributesCount: 0,
    ...(spans === undefined
      ? {}
      : { spanContext: { traceId: spans.traceId, spanId: spans.spanId, traceFlags: SAMPLED, isRemote: false } }),
  };
}

type MetricData = ResourceMetrics["scopeMetrics"][number]["metrics"][number];

/** Repeats enumeration values of `sdk-metrics`, so that the package is not loaded for a few numbers. */
const CUMULATIVE = 1;
const DOUBLE = 1;
const TYPE = { histogram: 0, gauge: 2, sum: 3 } as const;

export function metricExport(
  families: readonly MetricFamily[],
  resource: Resource,
  startTime: HrTime,
  endTime: HrTime,
): ResourceMetrics {
  const times = { startTime, endTime };
  const metrics = families.filter(({ points }) => points.length > 0).map((family) => metricData(family, times));
  return { resource, scopeMetrics: [{ scope: SCOPE, metrics }] };
}

function metricData({ name, help, type, points }: MetricFamily, times: Times): MetricData {
  const descriptor = { name, description: help, unit: metricUnit(name), valueType: DOUBLE };
  const common = { descriptor, aggregationTemporality: CUMULATIVE };
  if (type === "histogram")
    return { ...common, dataPointType: TYPE.histogram, dataPoints: points.map((point) => histogram(point, times)) };
  const dataPoints = points.map(({ labels, value }) => ({ ...times, attributes: { ...labels }, value }));
  return type === "counter"
    ? { ...common, dataPointType: TYPE.sum, isMonotonic: true, dataPoints }
    : { ...common, dataPointType: TYPE.gauge, dataPoints };
}

interface Times {
  readonly startTime: HrTime;
  readonly endTime: HrTime;
}

function histogram({ labels, value: sum, buckets }: MetricPoint, times: Times) {
  const counts = [...(buckets?.counts ?? [])];
  const count = counts.reduce((total, one) => total + one, 0);
  const value = { buckets: { boundaries: [...(buckets?.bounds ?? [])], counts }, sum, count };
  return { ...times, attributes: { ...labels }, value };
}

function metricUnit(name: string): string {
  if (/_seconds(?:_total)?$/.test(name)) return "s";
  return /_bytes(?:_total)?$/.test(name) ? "By" : "";
}

interface Sender<Payload> {
  send(payload: Payload): Promise<void>;
  close(): void;
}

interface OtlpSenders {
  /** Spans are encoded by `encodeSpan`. */
  readonly spans: Sender<Buffer[]>;
  readonly logs: Sender<ReadableLogRecord[]>;
  readonly metrics: Sender<ResourceMetrics>;
}

const CONCURRENT = 1;

export function createOtlpSenders(settings: OtlpSettings, resource: Resource): OtlpSenders {
  const spanSerializer = {
    serializeRequest: createTraceRequests(resource.attributes, SCOPE.name),
    deserializeResponse: ProtobufTraceSerializer.deserializeResponse,
  };
  const spanHelper = { name: TraceExporterMetricsHelper.name, countItems: (spans: readonly Buffer[]) => spans.length };
  return {
    spans: createSender(settings, "trace", "traces", spanSerializer, spanHelper),
    logs: createSender(settings, "logs", "logs", ProtobufLogsSerializer, LogsExporterMetricsHelper),
    metrics: createSender(settings, "metrics", "metrics", ProtobufMetricsSerializer, MetricsExporterMetricsHelper),
  };
}

function createSender<Payload, Response>(
  settings: OtlpSettings,
  service: "trace" | "logs" | "metrics",
  path: string,
  serializer: ISerializer<Payload, Response>,
  helper: Parameters<typeof createOtlpHttpExportDelegate<Payload, Response>>[3],
): Sender<Payload> {
  const delegate =
    settings.protocol === "grpc"
      ? grpcDelegate(settings, service, serializer, helper)
      : httpDelegate(settings, path, serializer, helper);
  return {
    send: (payload) =>
      new Promise((resolve, reject) => {
        delegate.export(payload, ({ code, error }) => {
          if (code === 0) resolve();
          else reject(error ?? new Error("the collector did not accept the export"));
        });
      }),
    close: () => void delegate.shutdown().catch(() => undefined),
  };
}

function httpDelegate<Payload, Response>(
  { endpoint, headers = {}, timeout }: OtlpSettings,
  path: string,
  serializer: ISerializer<Payload, Response>,
  helper: Parameters<typeof createOtlpHttpExportDelegate<Payload, Response>>[3],
): IOtlpExportDelegate<Payload> {
  return createOtlpHttpExportDelegate(
    {
      url: `${endpoint.replace(/\/+$/, "")}/v1/${path}`,
      headers: async () => ({ ...headers, "content-type": "application/x-protobuf" }),
      timeoutMillis: timeout,
      concurrencyLimit: CONCURRENT,
      compression: "none",
      agentFactory: httpAgentFactoryFromOptions({ keepAlive: true }),
    },
    serializer,
    "otlp_http_exporter",
    helper,
    undefined,
  );
}

function grpcDelegate<Payload, Response>(
  { endpoint, headers = {}, timeout }: OtlpSettings,
  service: "trace" | "logs" | "metrics",
  serializer: ISerializer<Payload, Response>,
  helper: Parameters<typeof createOtlpGrpcExportDelegate<Payload, Response>>[3],
): IOtlpExportDelegate<Payload> {
  const { host, protocol } = new URL(endpoint);
  const title = `${service[0]?.toUpperCase()}${service.slice(1)}`;
  const address = /:\d+$/.test(host) ? host : `${host}:${protocol === "https:" ? 443 : 80}`;
  return createOtlpGrpcExportDelegate(
    {
      url: address,
      metadata: () => {
        const metadata = createEmptyMetadata();
        for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
        return metadata;
      },
      credentials: () => (protocol === "https:" ? createSslCredentials() : createInsecureCredentials()),
      timeoutMillis: timeout,
      concurrencyLimit: CONCURRENT,
      compression: "none",
    },
    serializer,
    "otlp_grpc_exporter",
    helper,
    undefined,
    `${title}ExportService`,
    `/opentelemetry.proto.collector.${service}.v1.${title}Service/Export`,
  );
}

interface ExportCounts {
  dropped(count: number, reason: "queue_full" | "export_failed"): void;
  exported(count: number): void;
  /** Called with the error when exports start to fail, and with undefined when they recover. */
  changed(failure: Error | undefined): void;
}

/** Returns a function that counts an export and resolves when it has succeeded or failed. */
export function createExportCount(counts: ExportCounts): (count: number, sent: Promise<void>) => Promise<void> {
  let isFailing = false;
  return async (count, sent) => {
    try {
      await sent;
      counts.exported(count);
      if (isFailing) counts.changed(undefined);
      isFailing = false;
    } catch (error) {
      counts.dropped(count, "export_failed");
      if (!isFailing) counts.changed(error as Error);
      isFailing = true;
    }
  };
}

interface ExportQueueEnv<Item> extends ExportCounts {
  readonly clock: Clock;
  readonly limits?: ExportQueueLimits;
  /** Returns roughly how much memory the item needs. */
  bytesOf(item: Item): number;
  /** Resolves when the collector has accepted the batch, and rejects after the retries of the protocol. */
  send(items: Item[]): Promise<void>;
}

interface ExportQueueLimits {
  readonly items: number;
  /** Includes the batch that is being sent. */
  readonly bytes: number;
  readonly batch: number;
  readonly batchBytes: number;
  readonly delayMs: number;
}

/** gRPC servers accept messages of 4 MiB by default. */
const MAX_BATCH_BYTES = 2 * 1024 * 1024;
const MAX_QUEUE_BYTES = 32 * 1024 * 1024;
const LIMITS: ExportQueueLimits = {
  items: 4_096,
  bytes: MAX_QUEUE_BYTES,
  batch: 512,
  batchBytes: MAX_BATCH_BYTES,
  delayMs: 1_000,
};

export interface ExportQueue<Item> {
  add(item: Item): void;
  /** Sends the queue within the time limit and drops the rest. */
  close(limitMs: number): Promise<void>;
  readonly size: number;
}

export function createExportQueue<Item>(env: ExportQueueEnv<Item>): ExportQueue<Item> {
  const { clock, limits = LIMITS } = env;
  let waiting: { readonly item: Item; readonly bytes: number }[] = [];
  let waitingBytes = 0;
  let sendingBytes = 0;
  let timer: Timer | undefined;
  let sending: Promise<void> | undefined;
  let isClosed = false;
  const exported = createExportCount(env);

  function flush(): void {
    timer?.cancel();
    timer = undefined;
    if (sending !== undefined || waiting.length === 0) return;
    const batch = takeBatch();
    sending = exported(batch.length, env.send(batch)).finally(() => {
      sending = undefined;
      sendingBytes = 0;
      if (hasBatch() || (isClosed && waiting.length > 0)) flush();
      else arm();
    });
  }

  /** A batch has at least one item. */
  function takeBatch(): Item[] {
    let count = 0;
    for (const { bytes } of waiting) {
      if (count === limits.batch || (count > 0 && sendingBytes + bytes > limits.batchBytes)) break;
      sendingBytes += bytes;
      count += 1;
    }
    waitingBytes -= sendingBytes;
    return waiting.splice(0, count).map(({ item }) => item);
  }

  function hasBatch(): boolean {
    return waiting.length >= limits.batch || waitingBytes >= limits.batchBytes;
  }

  function arm(): void {
    if (waiting.length > 0 && timer === undefined && sending === undefined) timer = clock.after(limits.delayMs, flush);
  }

  return {
    add(item) {
      const bytes = env.bytesOf(item);
      if (isClosed || waiting.length >= limits.items || sendingBytes + waitingBytes + bytes > limits.bytes) {
        env.dropped(1, "queue_full");
        return;
      }
      waiting.push({ item, bytes });
      waitingBytes += bytes;
      if (sending !== undefined || timer === undefined) arm();
      if (hasBatch() && sending === undefined) flush();
    },
    async close(limitMs) {
      isClosed = true;
      flush();
      let isOver = false;
      const limit = new Promise<void>((resolve) => {
        clock.after(limitMs, () => {
          isOver = true;
          resolve();
        });
      });
      while (sending !== undefined && !isOver) await Promise.race([sending, limit]);
      if (waiting.length > 0) env.dropped(waiting.length, "queue_full");
      waiting = [];
      waitingBytes = 0;
    },
    get size() {
      return waiting.length;
    },
  };
}
