/**
 * Records the metrics of finished requests.
 */
import { STATUS_CODES } from "node:http";
import { methodLabel } from "../http/request-head.ts";
import { type FinishedRequest, mcpServer } from "./finished-request.ts";
import { boundedLabel, type Counter, DURATION_BUCKETS_SECONDS, type Histogram, type Metrics } from "./log/metrics.ts";

const LABELS = ["gateway", "route", "backend", "method", "status", "outcome", "error"] as const;
/** Bounds the map, because a reload may add routes and backends. */
const MAX_KNOWN = 10_000;
/** Statuses outside of the registry that keep their own label, for example 529. Backends choose them. */
const MAX_UNREGISTERED_STATUSES = 32;

const LABELLED_KEYS = 1_000;

type Labels = readonly [
  listener: string,
  route: string,
  backend: string,
  method: string,
  status: string,
  outcome: string,
  error: string,
];

interface Series {
  readonly labels: Labels;
  readonly count: Counter;
  readonly duration: Histogram;
  readonly bytes: Counter;
}

export type RequestMetrics = (finished: FinishedRequest) => void;

export function createRequestMetrics(metrics: Metrics): RequestMetrics {
  const requests = metrics.counter(
    "gateway_requests_total",
    "Requests that ended, by backend, status, and outcome (`ok`, `rejected`, `failed`, or `aborted` by the client). Extension methods, such as `PROPFIND`, and statuses beyond 32 unregistered ones are `other`.",
    LABELS,
  );
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
    "Requests of each API key, by the key's `name` or `user_id` and the class of the status. Keys beyond 1000 share `other`.",
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
  const statusLabel = createStatusLabels();
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

  return (finished) => {
    const { exchange, status: code, result, responseBytes, durationMs } = finished;
    const { listener, route = "", attributes, request, failure } = exchange;
    const backend = attributes.backend?.name ?? "";
    const method = methodLabel(request.method);
    const status = code === undefined ? "" : statusLabel(code);
    const error = failure?.code ?? "";
    // Comparing with the previous labels is cheaper than building a key.
    let series = last;
    if (series === undefined || !hasLabels(series.labels, listener, route, backend, method, status, result, error))
      series = last = getOrCreateSeries([listener, route, backend, method, status, result, error]);
    series.count.add();
    series.duration.observe(durationMs / 1000);
    series.bytes.add(responseBytes);
    if (attributes.apiKey !== undefined) {
      const key = labelOfKey(finished.key ?? "unnamed");
      keys.labels(key, code === undefined ? "none" : `${Math.floor(code / 100)}xx`).add();
      const { inputTokens, outputTokens } = attributes.llm ?? {};
      if (inputTokens) keyTokens.labels(key, "input").add(inputTokens);
      if (outputTokens) keyTokens.labels(key, "output").add(outputTokens);
    }
    const { mcp } = attributes;
    const target = mcp?.outcome === undefined ? undefined : mcpServer(mcp);
    if (target !== undefined) mcpDurations.labels(backend, target).observe(durationMs / 1000);
  };
}

function hasLabels(
  labels: Labels,
  listener: string,
  route: string,
  backend: string,
  method: string,
  status: string,
  outcome: string,
  error: string,
): boolean {
  return (
    labels[0] === listener &&
    labels[1] === route &&
    labels[2] === backend &&
    labels[3] === method &&
    labels[4] === status &&
    labels[5] === outcome &&
    labels[6] === error
  );
}

function createStatusLabels(): (status: number) => string {
  const labels = new Map(Object.keys(STATUS_CODES).map((status) => [Number(status), status]));
  const most = labels.size + MAX_UNREGISTERED_STATUSES;
  return (status) => {
    const known = labels.get(status);
    if (known !== undefined) return known;
    if (labels.size >= most) return "other";
    labels.set(status, String(status));
    return String(status);
  };
}
