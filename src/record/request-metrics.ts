/**
 * Records the metrics of finished requests.
 */
import { STATUS_CODES } from "node:http";
import { methodLabel } from "../http/request-head.ts";
import { type FinishedRequest, mcpServer, type RequestValues } from "./finished-request.ts";
import { boundedLabel, type Counter, DURATION_BUCKETS_SECONDS, type Histogram, type Metrics } from "./log/metrics.ts";

const LABELS = ["gateway", "route", "backend", "method", "status", "outcome", "error"] as const;
/** Statuses outside of the registry that keep their own label, for example 529. Backends choose them. */
const MAX_UNREGISTERED_STATUSES = 32;

const LABELLED_KEYS = 1_000;

interface Series {
  /** A request of the series. */
  readonly values: RequestValues;
  readonly count: Counter;
  readonly duration: Histogram;
  readonly bytes: Counter;
}

export function createRequestMetrics(metrics: Metrics): (finished: FinishedRequest) => void {
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
  const labelOfStatus = boundedLabel(MAX_UNREGISTERED_STATUSES, Object.keys(STATUS_CODES));
  let last: Series | undefined;

  function seriesOf(values: RequestValues): Series {
    const { listener, route = "", backend = "", status, result, failure } = values;
    const method = methodLabel(values.method);
    const statusText = status === undefined ? "" : labelOfStatus(String(status));
    return {
      values,
      count: requests.labels(listener, route, backend, method, statusText, result, failure?.code ?? ""),
      duration: durations.labels(listener, route),
      bytes: bytes.labels(listener, route),
    };
  }

  return ({ values }) => {
    const { backend = "", status, durationMs, attributes } = values;
    // Most requests have the labels of the previous one, and comparing them is cheaper than a lookup.
    if (last === undefined || !hasSameLabels(last.values, values)) last = seriesOf(values);
    last.count.add();
    last.duration.observe(durationMs / 1000);
    last.bytes.add(values.responseBytes);
    if (attributes.apiKey !== undefined) {
      const key = labelOfKey(values.key ?? "unnamed");
      keys.labels(key, status === undefined ? "none" : `${Math.floor(status / 100)}xx`).add();
      const { inputTokens, outputTokens } = attributes.llm ?? {};
      if (inputTokens) keyTokens.labels(key, "input").add(inputTokens);
      if (outputTokens) keyTokens.labels(key, "output").add(outputTokens);
    }
    const { mcp } = attributes;
    const target = mcp?.outcome === undefined ? undefined : mcpServer(mcp);
    if (target !== undefined) mcpDurations.labels(backend, target).observe(durationMs / 1000);
  };
}

function hasSameLabels(one: RequestValues, other: RequestValues): boolean {
  return (
    one.listener === other.listener &&
    one.route === other.route &&
    one.backend === other.backend &&
    one.method === other.method &&
    one.status === other.status &&
    one.result === other.result &&
    one.failure?.code === other.failure?.code
  );
}
