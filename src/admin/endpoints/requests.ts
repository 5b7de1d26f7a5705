/**
 * `/debug/requests` lists recent requests, newest first; `?id=` shows one in detail, and `?follow=true` streams
 * summaries. `/debug/history` returns up to a day of traffic. `/debug/trace` (spec 4.2, 6) streams the events of the
 * next request, after a comment that confirms that the trace is armed. It is experimental (spec 9).
 */
import { type Clock, parseTime } from "../../base/clock.ts";
import type { Form } from "../../base/form.ts";
import { compileExpression, type Expression, ExpressionError } from "../../cel/expression.ts";
import type { Exchange } from "../../core/exchange.ts";
import { RECENT_REQUESTS, type RecentRequests } from "../../record/recent-requests.ts";
import { findOlder, olderRequests, RECORDED_REQUESTS, type RequestHistory } from "../../record/recorded-request.ts";
import { MAX_WATCHERS, type TraceHub } from "../../record/trace/trace.ts";
import { type HistoryReport, TRAFFIC_GROUPS } from "../../record/trace/traffic-numbers.ts";
import { HISTORY_SECONDS, type TrafficHistory } from "../../record/traffic.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  jsonResponse,
  numberParameter,
  textResponse,
  unknownParameter,
} from "../server/endpoint.ts";
import { eventStreamResponse } from "../server/event-stream.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

const LIMIT = { name: "limit", min: 1, max: RECENT_REQUESTS, default: 100 };
const SINCE = { name: "since", min: 0, max: Number.MAX_SAFE_INTEGER, default: 0 };
const PARAMETERS = ["limit", "since", "before", "id", "follow"];
const MAX_FOLLOWERS = 8;

export function requestsEndpoint(recent: RecentRequests, requestHistory: RequestHistory, clock: Clock): AdminEndpoint {
  let followers = 0;

  function follow(): AdminResponse {
    if (followers >= MAX_FOLLOWERS)
      return textResponse(429, `${MAX_FOLLOWERS} clients already follow; close one and try again\n`);
    return eventStreamResponse(clock, (stream) => {
      followers += 1;
      stream.comment("following");
      const stop = recent.follow((record) => stream.data(record));
      return () => {
        stop();
        followers -= 1;
      };
    });
  }

  function list({ query }: AdminRequest): AdminResponse {
    const limit = numberParameter(query, LIMIT);
    if (!limit.ok) return limit.rejection;
    const since = numberParameter(query, SINCE);
    if (!since.ok) return since.rejection;
    const before = query.get("before");
    if (before !== null) return older(before, limit.value);
    return jsonResponse({
      requests: recent.list({ limit: limit.value, ...(query.has("since") ? { since: since.value } : {}) }),
      inFlight: recent.counts.inFlight,
      kept: recent.counts.kept,
      capacity: RECENT_REQUESTS,
    });
  }

  function older(before: string, limit: number): AdminResponse {
    const beforeMs = parseTime(before);
    if (Number.isNaN(beforeMs)) return textResponse(400, "before must be a time such as 2026-01-31T12:00:00Z\n");
    return jsonResponse({ requests: olderRequests(requestHistory, beforeMs, limit) });
  }

  return {
    path: ADMIN_PATHS.requests,
    doc: "Recent requests, newest first: ?limit=, ?since=<seq>, ?before=<time>; ?id=<x-request-id> explains one; ?follow=true streams.",
    GET(request) {
      const unknown = unknownParameter(request.query, PARAMETERS);
      if (unknown !== undefined) return unknown;
      const id = request.query.get("id");
      if (id !== null) {
        const recently = recent.find(id);
        const found = recently.length > 0 ? recently : findOlder(requestHistory, id);
        return found.length === 0
          ? textResponse(404, `no request ${JSON.stringify(id)} among the last ${RECORDED_REQUESTS}\n`)
          : jsonResponse({ requests: found });
      }
      return request.query.get("follow") === "true" ? follow() : list(request);
    },
  };
}

const SECONDS = { name: "seconds", min: 10, max: HISTORY_SECONDS, default: 300 };

/** Each parameter selects the traffic with one name: a group and the index in its names. */
const NAME_PARAMETERS = {
  listener: { group: "node", index: 0 },
  route: { group: "node", index: 1 },
  backend: { group: "node", index: 2 },
  model: { group: "model", index: 0 },
  key: { group: "key", index: 0 },
} as const;

export function historyEndpoint(history: TrafficHistory): AdminEndpoint {
  function reportFor(query: Form, seconds: number): HistoryReport {
    // A tool is `server/name`, and names of tools can contain a slash.
    const tool = query.get("tool");
    if (tool !== null) return history.reportOf("tool", (name) => name.join("/") === tool, seconds);
    for (const [parameter, { group, index }] of Object.entries(NAME_PARAMETERS)) {
      const value = query.get(parameter);
      if (value !== null) return history.reportOf(group, (name) => name[index] === value, seconds);
    }
    return history.report(seconds);
  }

  return {
    path: ADMIN_PATHS.history,
    doc: "Requests, failures, latency, tokens and cost over time: ?seconds=<10 to 86400>, default 300. ?route=<name>, listener, backend, model, tool or key selects a part; ?by=node, model, tool, key, user or error lists totals.",
    GET({ query }) {
      const seconds = numberParameter(query, SECONDS);
      if (!seconds.ok) return seconds.rejection;
      const by = query.get("by");
      if (by === null) return jsonResponse(reportFor(query, seconds.value));
      const group = TRAFFIC_GROUPS.find((name) => name === by);
      return group === undefined
        ? textResponse(400, `cannot group by ${JSON.stringify(by)}; expected ${TRAFFIC_GROUPS.join(", ")}\n`)
        : jsonResponse(history.rows(group, seconds.value));
    },
  };
}

const WANTED = 0;
const UNFINISHED = 1;
const COUNT = { name: "count", min: 1, max: 1000, default: 1 };
/** The trace expression is evaluated before any policy runs, and only these attributes are available then. */
const KNOWN_AT_ARRIVAL = new Set(["request", "source", "client", "env", "proxy"]);

export function traceEndpoint(hub: TraceHub<Exchange>, clock: Clock): AdminEndpoint {
  const open = (request: AdminRequest): AdminResponse => watch(request, hub, clock);
  return {
    path: ADMIN_PATHS.trace,
    doc: "Events of the next request (experimental). ?expression=<CEL> waits for a matching request, ?count=N traces several.",
    GET: open,
    POST: open,
  };
}

function watch({ query, quota }: AdminRequest, hub: TraceHub<Exchange>, clock: Clock): AdminResponse {
  const unknown = unknownParameter(query, ["expression", COUNT.name]);
  if (unknown !== undefined) return unknown;
  const count = numberParameter(query, COUNT);
  if (!count.ok) return count.rejection;
  const matcher = compileMatcher(query.get("expression"));
  if (typeof matcher === "string") return textResponse(400, `invalid expression: ${matcher}\n`);

  if (hub.isFull()) return textResponse(429, `${MAX_WATCHERS} traces are open already; close one and try again\n`);
  return eventStreamResponse(clock, (stream) => {
    // Other threads may trace some or all of the requested number.
    const shared = quota && new Int32Array(quota);
    let unfinished = count.value;
    const withdraw = hub.wait({
      count: count.value,
      matches: shared ? (exchange) => matcher(exchange) && claims(shared) : matcher,
      begin: (exchange) => ({
        // Requests in the stream may overlap, so each event has its request ID.
        event: (event) => stream.data(count.value === 1 ? event : { ...event, requestId: exchange.id }),
        finished() {
          unfinished = shared ? Atomics.sub(shared, UNFINISHED, 1) - 1 : unfinished - 1;
          if (unfinished === 0) stream.end();
        },
      }),
    });
    if (withdraw) stream.comment("armed: waiting for a request");
    else stream.end();
    return withdraw ?? (() => undefined);
  });
}

function claims(shared: Int32Array): boolean {
  return Atomics.sub(shared, WANTED, 1) > 0;
}

function compileMatcher(source: string | null): ((exchange: Exchange) => boolean) | string {
  if (source === null || source.trim() === "") return () => true;
  let expression: Expression;
  try {
    expression = compileExpression(source);
  } catch (error) {
    if (error instanceof ExpressionError) return error.located;
    throw error;
  }
  const unknown = [...expression.attributes].find((name) => !KNOWN_AT_ARRIVAL.has(name));
  if (unknown !== undefined)
    return `\`${unknown}\` is not known yet when a request arrives; use \`request\`, \`source\` and \`client\``;
  if (expression.paths.has("request.body")) return "`request.body` is not known yet when a request arrives";
  return (exchange) => {
    const result = expression.evaluate(exchange.celAttributes);
    return result.ok && result.value === true;
  };
}
