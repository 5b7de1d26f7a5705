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
import { defined } from "../json/json.ts";
import { type FinishedRequest, type RequestValues, recordedLimits } from "./finished-request.ts";
import { requestRecordFields } from "./request-fields.ts";
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
      const { exchange, values } = finished;
      inFlight.remove(exchange);
      if (exchange.records.isQuiet) {
        if (exchange.trace !== undefined) endTrace(exchange.trace, values);
        return;
      }
      const one = keptRequest(options.nextSeq?.() ?? count, values, share);
      ring[count % RECENT_REQUESTS] = one;
      if (count >= WITH_HEADERS) dropHeaders(ring[(count - WITH_HEADERS) % RECENT_REQUESTS] as KeptRequest);
      count += 1;
      if (exchange.trace !== undefined) endTrace(exchange.trace, values);
      if (values.result !== "ok") exchange.state(ownRecording)?.keep(exchange.id);
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
        if (one.values.id !== id) continue;
        const record = toRequestRecord(one);
        // At most one trace is kept per id, that of the newest failed request.
        const trace = details.length === 0 && one.values.result !== "ok" ? kept?.find(id) : undefined;
        details.push({
          ...record,
          story: explainRequest(record),
          requestState: finishedState(one.values, redaction),
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

function endTrace(trace: Trace, { failure, attributes, end, status }: RequestValues): void {
  if (attributes.llm !== undefined)
    trace.point({ type: "policyEvent", kind: "llmUsage", details: { ...withoutText(attributes.llm) } });
  const error = failure?.message ?? (end === "complete" ? null : end);
  const failed = end !== "complete" || (status ?? 0) >= 500;
  const severity = failed ? "error" : error !== null || (status ?? 0) >= 400 ? "warn" : "info";
  trace.point({ type: "requestFinished", status: status ?? null, error }, severity);
  trace.finish();
}

interface KeptRequest {
  readonly seq: number;
  readonly values: RequestValues;
}

/** The values reference neither bodies nor the head as it arrived. */
function keptRequest(seq: number, values: RequestValues, share: (text: string) => string): KeptRequest {
  values.method = share(values.method);
  values.host = share(values.host);
  values.path = share(values.path);
  values.rawPath = share(values.rawPath);
  values.query = share(values.query);
  const { llm } = values.attributes;
  if (llm !== undefined) values.attributes = { ...values.attributes, llm: withoutText(llm) };
  return { seq, values };
}

/** Headers are most of a request's size. Requests that did not succeed keep them. */
function dropHeaders({ values }: KeptRequest): void {
  if (values.result !== "ok") return;
  values.headers = NO_HEADERS;
  values.responseHeaders = undefined;
  values.credentials = { query: values.credentials.query, secrets: undefined };
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
function finishedState(values: RequestValues, redaction: Redaction): JsonObject {
  const { listener, route, headers, responseHeaders, credentials, status } = values;
  const state = requestState({ ...values, request: values }, redaction);
  const { headers: requestHeaders, ...requestFields } = state.request as JsonObject;
  // A response may echo credentials of the request.
  const hidden = [...redaction.secrets(headers.pairs), ...(credentials.secrets ?? [])];
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
    proxy: { listener: { name: listener }, ...(route === undefined ? {} : { route: { name: route } }) },
  };
}

function toRequestRecord({ seq, values }: KeptRequest): RequestRecord {
  const { attempts, failure, rules, shadowDenials } = values;
  return {
    ...requestRecordFields(values),
    seq,
    time: new Date(values.startedAt).toISOString(),
    source: values.source,
    steps: values.steps,
    ...defined({
      attempts,
      limits: recordedLimits(values),
      failure,
      rules,
      shadow: shadowDenials?.map(({ policy, detail }) => ({ policy, reason: detail })),
    }),
  };
}
