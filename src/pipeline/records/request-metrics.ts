/**
 * Records the metrics of finished requests.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { Outcome } from "../../core/policy.ts";
import { type Counter, DURATION_BUCKETS_SECONDS, type Histogram, type Metrics } from "../../observe/log/metrics.ts";

const LABELS = ["gateway", "route", "backend", "method", "status", "error"] as const;
/** Bounds the map, because statuses and methods are external input. */
const MAX_KNOWN = 10_000;

const LABELLED_KEYS = 1_000;

type Labels = readonly [
  listener: string,
  route: string,
  backend: string,
  method: string,
  status: string,
  error: string,
];

interface Series {
  readonly labels: Labels;
  readonly count: Counter;
  readonly duration: Histogram;
  readonly bytes: Counter;
}

export type RequestMetrics = (exchange: Exchange, outcome: Outcome, durationMs: number) => void;

export function createRequestMetrics(metrics: Metrics): RequestMetrics {
  const requests = metrics.counter("gateway_requests_total", "Requests that ended, by who answered and how.", LABELS);
  const durations = metrics.histogram(
    "gateway_request_duration_seconds",
    "From the request's arrival to the end of its response.",
    DURATION_BUCKETS_SECONDS,
    ["gateway", "route"],
  );
  const bytes = metrics.counter("gateway_response_bytes_total", "Body bytes that were sent to clients.", [
    "gateway",
    "route",
  ]);
  const keys = metrics.counter(
    "gateway_key_requests_total",
    "Requests of each API key, by the key's `user_id` or `name` and the class of the status. Keys beyond 1000 share `other`.",
    ["key", "status_class"],
  );
  const keyTokens = metrics.counter(
    "gateway_key_tokens_total",
    "LLM tokens of each API key, by type. Keys beyond 1000 share `other`.",
    ["key", "type"],
  );
  const mcpDurations = metrics.histogram(
    "gateway_mcp_duration_seconds",
    "From the arrival of an MCP request to the end of its response, by the target that answered.",
    DURATION_BUCKETS_SECONDS,
    ["backend", "target"],
  );
  const labelOfKey = boundedLabel(LABELLED_KEYS);
  const known = new Map<string, Series>();

  let last: Series | undefined;

  function getOrCreateSeries(labels: Labels): Series {
    const key = labels.join("|");
    const before = known.get(key);
    if (before) return before;
    const [listener, route] = labels;
    const series = {
      labels,
      count: requests.labels(...labels),
      duration: durations.labels(listener, route),
      bytes: bytes.labels(listener, route),
    };
    if (known.size < MAX_KNOWN) known.set(key, series);
    return series;
  }

  return (exchange, outcome, durationMs) => {
    const { listener, route = "", attributes, request, failure } = exchange;
    const backend = attributes.backend?.name ?? "";
    const status = outcome.status === undefined ? "" : String(outcome.status);
    const error = failure?.code ?? "";
    // Comparing with the previous labels is cheaper than building a key.
    let series = last;
    if (series === undefined || !hasLabels(series.labels, listener, route, backend, request.method, status, error))
      series = last = getOrCreateSeries([listener, route, backend, request.method, status, error]);
    series.count.add();
    series.duration.observe(durationMs / 1000);
    series.bytes.add(outcome.responseBytes);
    if (attributes.apiKey !== undefined) {
      const key = labelOfKey(nameOfKey(attributes.apiKey));
      keys.labels(key, status === "" ? "none" : `${status[0]}xx`).add();
      const { inputTokens, outputTokens } = attributes.llm ?? {};
      if (inputTokens) keyTokens.labels(key, "input").add(inputTokens);
      if (outputTokens) keyTokens.labels(key, "output").add(outputTokens);
    }
    const target = attributes.mcp?.tool?.target ?? attributes.mcp?.target;
    if (target !== undefined && attributes.mcp?.outcome !== undefined)
      mcpDurations.labels(backend, target).observe(durationMs / 1000);
  };
}

function hasLabels(
  labels: Labels,
  listener: string,
  route: string,
  backend: string,
  method: string,
  status: string,
  error: string,
): boolean {
  return (
    labels[0] === listener &&
    labels[1] === route &&
    labels[2] === backend &&
    labels[3] === method &&
    labels[4] === status &&
    labels[5] === error
  );
}

/** The first `most` values get their own label, and later values share `other`. */
function boundedLabel(most: number): (value: string) => string {
  const known = new Set<string>();
  return (value) => {
    if (known.has(value)) return value;
    if (known.size >= most) return "other";
    known.add(value);
    return value;
  };
}

function nameOfKey({ user_id: id, name }: Readonly<Record<string, unknown>>): string {
  return typeof id === "string" ? id : typeof name === "string" ? name : "unnamed";
}
