/**
 * Holds the most recent requests and those in flight for the admin interface.
 */

import type { Clock } from "../base/clock.ts";
import { LinkedList } from "../base/linked-list.ts";
import { type Exchange, StateKey } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import {
  createStringSharing,
  FinishedRequest,
  finishedState,
  resultOfRequest,
  toRequestRecord,
  withoutText,
} from "./finished-request.ts";
import { explainRequest } from "./trace/explain.ts";
import type { RequestDetail, RequestRecord } from "./trace/record.ts";
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
  settled(exchange: Exchange, outcome: Outcome, durationMs: number): void;
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
  /** Once the ring is full, each request overwrites the oldest one, so the objects must not be returned to callers. */
  const ring: FinishedRequest[] = [];
  const share = createStringSharing();
  const inFlight = new LinkedList<Exchange>();
  const ownRecording = new StateKey<TraceRecording>();
  const followers = new Set<(record: RequestRecord) => void>();
  let count = 0;

  function* finished(): Generator<FinishedRequest> {
    for (let i = 0; i < ring.length; i++) yield ring[(count - 1 - i) % RECENT_REQUESTS] as FinishedRequest;
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

    settled(exchange, outcome, durationMs) {
      inFlight.remove(exchange);
      if (exchange.records.isQuiet) {
        if (exchange.trace !== undefined) endTrace(exchange, exchange.trace, outcome);
        return;
      }
      if (ring.length < RECENT_REQUESTS) ring.push(new FinishedRequest());
      const one = ring[count % RECENT_REQUESTS] as FinishedRequest;
      one.set(options.nextSeq?.() ?? count, exchange, outcome, durationMs, { share, redaction });
      if (count >= WITH_HEADERS) ring[(count - WITH_HEADERS) % RECENT_REQUESTS]?.dropHeaders();
      count += 1;
      if (exchange.trace !== undefined) endTrace(exchange, exchange.trace, outcome);
      if (resultOfRequest(exchange, outcome) !== "ok") exchange.state(ownRecording)?.keep(exchange.id);
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

function endTrace(exchange: Exchange, trace: Trace, outcome: Outcome): void {
  const { failure, attributes } = exchange;
  if (attributes.llm !== undefined)
    trace.point({ type: "policyEvent", kind: "llmUsage", details: { ...withoutText(attributes.llm) } });
  const error = failure?.message ?? (outcome.end === "complete" ? null : outcome.end);
  const status = outcome.status ?? null;
  const failed = outcome.end !== "complete" || (status ?? 0) >= 500;
  const severity = failed ? "error" : error !== null || (status ?? 0) >= 400 ? "warn" : "info";
  trace.point({ type: "requestFinished", status, error }, severity);
  trace.finish();
}
