/**
 * The charts of traffic: requests by result, latency, tokens, cost, and MCP calls.
 */

import { dollarText, shortText } from "../../../src/base/format.ts";
import { usePoll } from "../data/poll.ts";
import { range, ranges, type Scope, type Traffic, type TrafficPoint, trafficOf } from "../data/traffic.ts";
import { param, setParams } from "../frame/router.ts";
import { Chart } from "./chart.tsx";
import type { ChartSeries } from "./chart-scale.ts";
import { Choice } from "./choice.tsx";
import { axisDurationText } from "./format.ts";
import { Skeleton } from "./panel.tsx";

export const CHARTS = {
  requests: "Requests",
  errors: "Errors",
  latency: "Latency",
  tokens: "Tokens",
  cost: "Cost",
  mcp: "MCP calls",
} as const;
export type ChartName = keyof typeof CHARTS;

export function TrafficChart({ name, scope = {}, height }: { name: ChartName; scope?: Scope; height?: number }) {
  const report = usePoll(trafficOf(scope));
  if (report === undefined) return <Skeleton lines={4} />;
  const { points, slotSeconds } = report;
  return (
    <Chart
      title={`${CHARTS[name]} in the last ${range().title}`}
      times={points.map(({ at }) => at)}
      slotSeconds={slotSeconds}
      series={seriesOf(name, report)}
      kind={name === "latency" ? "lines" : "bars"}
      format={FORMATS[name]}
      isCount={name !== "latency" && name !== "cost"}
      {...(height === undefined ? {} : { height })}
    />
  );
}

const FORMATS: Readonly<Record<ChartName, (value: number) => string>> = {
  requests: shortText,
  errors: shortText,
  latency: axisDurationText,
  tokens: shortText,
  cost: dollarText,
  mcp: shortText,
};

function seriesOf(name: ChartName, { points, source }: Traffic): ChartSeries[] {
  const series = (title: string, color: string, value: (point: TrafficPoint) => number | null): ChartSeries => ({
    name: title,
    color,
    values: points.map(value),
  });
  const failed = series("Failed", "--chart-bad", (point) => point.failed);
  const rejected = series("Rejected", "--chart-warn", (point) => point.rejected);
  if (name === "requests")
    return [series("OK", "--chart-1", (point) => point.requests - point.failed - point.rejected), rejected, failed];
  if (name === "errors") return [rejected, failed];
  if (name === "tokens") return [series("Tokens", "--chart-2", (point) => point.tokens)];
  if (name === "cost") return [series("Cost", "--chart-3", (point) => point.cost)];
  if (name === "mcp") return [series("Calls", "--chart-1", (point) => point.mcpCalls)];
  if (source === "database") return [series("Mean", "--chart-1", (point) => point.meanMs ?? null)];
  return [
    series("p50", "--chart-1", (point) => point.p50Ms),
    series("p95", "--chart-2", (point) => point.p95Ms),
    series("p99", "--chart-3", (point) => point.p99Ms),
  ];
}

export function RangeChoice() {
  return (
    <Choice
      label="Range"
      values={ranges().map(({ name, title }) => ({ value: name, title }))}
      selected={range().name}
      onSelect={(name) => setParams({ range: name }, { replace: true })}
    />
  );
}

/** Returns the chart in the URL. */
export function selectedChart(): ChartName {
  const name = param("chart");
  return name in CHARTS ? (name as ChartName) : "requests";
}
