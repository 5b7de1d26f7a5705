/**
 * The gateway's metrics as OTLP data: the same names and labels as `/metrics` shows, cumulative since the start.
 */
import type { MetricFamily, MetricPoint } from "../lib/log/metrics.ts";
import { type HrTime, type Resource, type ResourceMetrics, SCOPE } from "./signals.ts";

type MetricData = ResourceMetrics["scopeMetrics"][number]["metrics"][number];

/** Of the enumerations in `sdk-metrics`, which is not loaded for two numbers. */
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
  const descriptor = { name, description: help, unit: unitOf(name), valueType: DOUBLE };
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

function unitOf(name: string): string {
  if (/_seconds(?:_total)?$/.test(name)) return "s";
  return /_bytes(?:_total)?$/.test(name) ? "By" : "";
}
