/**
 * Converts metrics and log records to the input of the official OpenTelemetry serializers. Only types are
 * imported from the packages, so that this file loads none of them.
 */
import type {
  ProtobufLogsSerializer,
  ProtobufMetricsSerializer,
  ProtobufTraceSerializer,
} from "@opentelemetry/otlp-transformer";
import type { LogFields } from "../log/logger.ts";
import type { MetricFamily, MetricPoint } from "../log/metrics.ts";
import type { RequestSpans } from "../trace/request-spans.ts";

type Serialized<Serializer extends { serializeRequest(request: never): unknown }> = Parameters<
  Serializer["serializeRequest"]
>[0];

type ReadableSpan = Serialized<typeof ProtobufTraceSerializer>[number];
export type ReadableLogRecord = Serialized<typeof ProtobufLogsSerializer>[number];
export type ResourceMetrics = Serialized<typeof ProtobufMetricsSerializer>;
export type Resource = ReadableSpan["resource"];
export type Attributes = ReadableSpan["attributes"];
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

export interface LogEntry {
  readonly level: keyof typeof SEVERITY;
  readonly name: string;
  readonly epochMs: number;
  readonly fields: LogFields;
  readonly spans: RequestSpans | undefined;
}

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
