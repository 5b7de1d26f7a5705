/**
 * Holds the most recent requests and those in flight for the admin interface.
 */

import { Buffer } from "node:buffer";
import type { Clock } from "../base/clock.ts";
import { LinkedList } from "../base/linked-list.ts";
import { type Exchange, StateKey } from "../core/exchange.ts";
import type { LlmAttributes, LlmCallAttributes } from "../core/request-attributes.ts";
import { requestState } from "../core/snapshot.ts";
import { HeaderList } from "../http/headers.ts";
import { type FinishedRequest, llmFields, mcpFields, recordedLimits } from "./finished-request.ts";
import { explainRequest } from "./trace/explain.ts";
import type { JsonObject, RequestDetail, RequestRecord } from "./trace/record.ts";
import type { Redaction } from "./trace/redact.ts";
import {
  bothWatchers,
  createTrace,
  type KeptTraces,
  type Trace,
  type TraceRecording,
  type TraceWatcher,
} from "./trace/trace.ts";

export const RECENT_REQUESTS = 500;
const NO_HEADERS = new HeaderList();
const SHARED_STRINGS = 1_000;
/** Longer strings are copied, so that the table stays small whatever paths clients send. */
const MAX_SHARED_CHARS = 200;
/** This many newest requests and all failed requests keep their headers. */
export const WITH_HEADERS = 64;

export interface RecentRequestsOptions {
  readonly clock: Clock;
  readonly redaction: Redaction;
  watcher(exchange: Exchange): TraceWatcher | undefined;
  readonly kept: KeptTraces | undefined;
  /** Returns the next number of a sequence that all threads share. */
  nextSeq?(): number;
}

export interface RecentRequests {
  /** Called at the start of every request. Returns a trace if the request is watched or recorded. */
  begin(exchange: Exchange): Trace | undefined;
  settled(finished: FinishedRequest): void;
  list(options: { readonly limit: number; readonly since?: number }): RequestRecord[];
  /** Returns the kept requests with the id, newest first. */
  find(id: string): RequestDetail[];
  /** Calls the listener for each finished request that is kept. The returned function unsubscribes it. */
  follow(listener: (record: RequestRecord) => void): () => void;
  inFlight(limit: number): InFlightReport[];
  readonly counts: { readonly inFlight: number; readonly kept: number };
}

export interface InFlightReport {
  readonly id: string;
  readonly listener: string;
  readonly route: string | null;
  readonly backend: string | null;
  readonly method: string;
  readonly path: string;
  readonly ageMs: number;
  readonly status: number | null;
}

export function createRecentRequests(options: RecentRequestsOptions): RecentRequests {
  const { clock, redaction, kept } = options;
  const ring: KeptRequest[] = [];
  const share = createStringSharing();
  const inFlight = new LinkedList<Exchange>();
  const ownRecording = new StateKey<TraceRecording>();
  const followers = new Set<(record: RequestRecord) => void>();
  let count = 0;

  function* finished(): Generator<KeptRequest> {
    for (let i = 0; i < ring.length; i++) yield ring[(count - 1 - i) % RECENT_REQUESTS] as KeptRequest;
  }

  return {
    begin(exchange) {
      inFlight.add(exchange);
      const recording = kept?.record();
      if (recording) exchange.setState(ownRecording, recording);
      const watcher = options.watcher(exchange);
      if (watcher === undefined) return recording && createTrace(clock, recording);
      return createTrace(clock, recording ? bothWatchers(watcher, recording) : watcher);
    },

    settled(finished) {
      const { exchange } = finished;
      inFlight.remove(exchange);
      if (exchange.records.isQuiet) {
        if (exchange.trace !== undefined) endTrace(exchange.trace, finished);
        return;
      }
      const one = keptRequest(options.nextSeq?.() ?? count, finished, share, redaction);
      ring[count % RECENT_REQUESTS] = one;
      if (count >= WITH_HEADERS) dropHeaders(ring[(count - WITH_HEADERS) % RECENT_REQUESTS] as KeptRequest);
      count += 1;
      if (exchange.trace !== undefined) endTrace(exchange.trace, finished);
      if (finished.result !== "ok") exchange.state(ownRecording)?.keep(exchange.id);
      if (followers.size > 0) {
        const record = toRequestRecord(one);
        for (const follower of followers) follower(record);
      }
    },

    list({ limit, since }) {
      const records: RequestRecord[] = [];
      for (const one of finished()) {
        if (records.length >= limit || (since !== undefined && one.seq <= since)) break;
        records.push(toRequestRecord(one));
      }
      return records;
    },

    find(id) {
      const details: RequestDetail[] = [];
      for (const one of finished()) {
        if (one.id !== id) continue;
        const record = toRequestRecord(one);
        // At most one trace is kept per id, that of the newest failed request.
        const trace = details.length === 0 && one.result !== "ok" ? kept?.find(id) : undefined;
        details.push({
          ...record,
          story: explainRequest(record),
          requestState: finishedState(one, redaction),
          ...(trace ? { trace } : {}),
        });
      }
      return details;
    },

    follow(listener) {
      followers.add(listener);
      return () => void followers.delete(listener);
    },

    inFlight(limit) {
      const reports: InFlightReport[] = [];
      for (let exchange = inFlight.first; exchange && reports.length < limit; exchange = exchange.next) {
        reports.push({
          id: exchange.id,
          listener: exchange.listener,
          route: exchange.route ?? null,
          backend: exchange.attributes.backend?.name ?? null,
          method: exchange.request.method,
          path: exchange.originalPath,
          ageMs: Math.round(clock.monotonicMs() - exchange.startedMs),
          status: exchange.response?.status ?? null,
        });
      }
      return reports;
    },

    get counts() {
      return { inFlight: inFlight.size, kept: ring.length };
    },
  };
}

function endTrace(trace: Trace, finished: FinishedRequest): void {
  const { failure, attributes } = finished.exchange;
  if (attributes.llm !== undefined)
    trace.point({ type: "policyEvent", kind: "llmUsage", details: { ...withoutText(attributes.llm) } });
  const error = failure?.message ?? (finished.end === "complete" ? null : finished.end);
  const status = finished.status ?? null;
  const failed = finished.end !== "complete" || (status ?? 0) >= 500;
  const severity = failed ? "error" : error !== null || (status ?? 0) >= 400 ? "warn" : "info";
  trace.point({ type: "requestFinished", status, error }, severity);
  trace.finish();
}

type KeptRequest = ReturnType<typeof keptRequest>;

/** Returns the fields of a finished request that are shown. Bodies and the head as it arrived are not referenced. */
function keptRequest(
  seq: number,
  finished: FinishedRequest,
  share: (text: string) => string,
  redaction: Pick<Redaction, "host" | "scrub">,
) {
  const { exchange, status } = finished;
  const { arrived, attributes, credentials, limits } = exchange;
  return {
    seq,
    id: exchange.id,
    listener: exchange.listener,
    route: exchange.route,
    source: exchange.source,
    startedAt: exchange.startedAt,
    durationMs: finished.durationMs,
    upstreamMs: finished.upstreamMs,
    method: share(arrived.method),
    scheme: arrived.scheme,
    host: share(redaction.host(exchange.originalHost)),
    path: share(exchange.originalPath),
    rawPath: share(arrived.rawPath),
    query: share(exchange.originalQuery),
    version: arrived.version,
    headers: arrived.headers,
    responseHeaders: status === undefined ? undefined : exchange.response?.headers,
    credentialQuery: credentials.query as readonly string[] | undefined,
    secrets: credentials.secrets as readonly string[] | undefined,
    status,
    end: finished.end,
    result: finished.result,
    subject: finished.subject,
    responseBytes: finished.responseBytes,
    answeredBy: finished.answeredBy,
    steps: exchange.steps,
    attempts: finished.attempts(redaction),
    failure: exchange.failure,
    rules: finished.rules(redaction),
    limitReadings: limits.readings,
    budgetReadings: limits.budgetReadings,
    shadowDenials: exchange.shadow.denials,
    // The original object may reference the whole body.
    attributes: attributes.llm ? { ...attributes, llm: withoutText(attributes.llm) } : attributes,
  };
}

/** Headers are most of a request's size. Requests that did not succeed keep them. */
function dropHeaders(one: KeptRequest): void {
  if (one.result !== "ok") return;
  one.headers = NO_HEADERS;
  one.responseHeaders = undefined;
  one.secrets = undefined;
}

/**
 * Returns a function that returns the same string for equal strings. The parser slices its strings from the head of the
 * request, so that each of them would keep the head in memory.
 */
function createStringSharing(): (text: string) => string {
  const known = new Map<string, string>();
  return (text) => {
    if (text.length > MAX_SHARED_CHARS) return Buffer.from(text).toString();
    const shared = known.get(text);
    if (shared !== undefined) return shared;
    if (known.size >= SHARED_STRINGS) known.clear();
    const copy = Buffer.from(text).toString();
    known.set(copy, copy);
    return copy;
  };
}

type KeptAttributes = Omit<LlmCallAttributes, "prompt" | "completion">;

/**
 * The prompt and the completion are for the access log and spans. They can be large and are not kept. The members are
 * named, because a rest of all others takes 2 µs in Node 20.
 */
function withoutText(llm: LlmCallAttributes): LlmAttributes {
  const kept: { [Name in keyof Required<KeptAttributes>]: LlmCallAttributes[Name] | undefined } = {
    requestModel: llm.requestModel,
    responseModel: llm.responseModel,
    providerRequestId: llm.providerRequestId,
    dropped: llm.dropped,
    provider: llm.provider,
    streaming: llm.streaming,
    inputTokens: llm.inputTokens,
    outputTokens: llm.outputTokens,
    totalTokens: llm.totalTokens,
    cachedInputTokens: llm.cachedInputTokens,
    cacheCreationInputTokens: llm.cacheCreationInputTokens,
    reasoningTokens: llm.reasoningTokens,
    cost: llm.cost,
    providerCalls: llm.providerCalls,
  };
  return kept as LlmAttributes;
}

/** Returns the attributes under the names that CEL expressions use. `headers` is absent if they are no longer kept. */
function finishedState(one: KeptRequest, redaction: Redaction): JsonObject {
  const { source, attributes, startedAt, headers, responseHeaders, secrets, status } = one;
  const state = requestState(
    {
      request: one,
      source,
      attributes,
      startedAt,
      credentials: { query: one.credentialQuery, secrets },
    },
    redaction,
  );
  const { headers: requestHeaders, ...requestFields } = state.request as JsonObject;
  // A response may echo credentials of the request.
  const hidden = [...redaction.secrets(headers.pairs), ...(secrets ?? [])];
  return {
    ...state,
    request: { ...requestFields, ...(headers === NO_HEADERS ? {} : { headers: requestHeaders }) },
    ...(status === undefined
      ? {}
      : {
          response: {
            code: status,
            ...(responseHeaders ? { headers: redaction.headers(responseHeaders.pairs, hidden) } : {}),
          },
        }),
    proxy: {
      listener: { name: one.listener },
      ...(one.route === undefined ? {} : { route: { name: one.route } }),
    },
  };
}

function toRequestRecord(one: KeptRequest): RequestRecord {
  const { failure, shadowDenials, attributes } = one;
  const { backend, mcp, llm } = attributes;
  return {
    seq: one.seq,
    id: one.id,
    time: new Date(one.startedAt).toISOString(),
    durationMs: round(one.durationMs),
    listener: one.listener,
    route: one.route ?? null,
    backend: backend?.name ?? null,
    method: one.method,
    host: one.host,
    path: one.path,
    source: one.source,
    status: one.status ?? null,
    answeredBy: one.answeredBy,
    end: one.end,
    responseBytes: one.responseBytes,
    upstreamMs: Number.isNaN(one.upstreamMs) ? null : round(one.upstreamMs),
    subject: one.subject,
    ...(mcp ? { mcp: mcpFields(mcp) } : {}),
    ...(llm ? { llm: llmFields(llm) } : {}),
    steps: one.steps,
    ...(one.attempts === undefined ? {} : { attempts: one.attempts }),
    ...(one.limitReadings || one.budgetReadings
      ? { limits: recordedLimits(one.limitReadings, one.budgetReadings) }
      : {}),
    ...(failure ? { failure } : {}),
    ...(one.rules ? { rules: one.rules } : {}),
    ...(shadowDenials ? { shadow: shadowDenials.map(({ policy, detail }) => ({ policy, reason: detail })) } : {}),
  };
}

function round(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
