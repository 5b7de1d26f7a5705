/**
 * Adds times to the trace messages of one request and passes the events to a watcher, or keeps them if the request
 * failed.
 */
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import type { Severity, TraceEvent, TraceMessage } from "./record.ts";

/** Receives events without blocking the request. It may drop events. */
export interface TraceWatcher {
  event(event: TraceEvent): void;
  finished(): void;
}

export interface Trace {
  point(message: TraceMessage, severity?: Severity): void;
  /** Records a span from `startedMs` (monotonic time) to now. */
  span(startedMs: number, message: TraceMessage, severity?: Severity): void;
  finish(): void;
}

export function createTrace(clock: Clock, watcher: TraceWatcher): Trace {
  const beganMs = clock.monotonicMs();
  const micros = (ms: number): number => Math.max(0, Math.round((ms - beganMs) * 1000));
  const emit = (startedMs: number | undefined, message: TraceMessage, severity: Severity): void => {
    watcher.event({
      eventStart: startedMs === undefined ? null : micros(startedMs),
      eventEnd: micros(clock.monotonicMs()),
      severity,
      message,
    });
  };
  return {
    point: (message, severity = "info") => emit(undefined, message, severity),
    span: (startedMs, message, severity = "info") => emit(startedMs, message, severity),
    finish: () => watcher.finished(),
  };
}

export function bothWatchers(first: TraceWatcher, second: TraceWatcher): TraceWatcher {
  return {
    event(event) {
      first.event(event);
      second.event(event);
    },
    finished() {
      first.finished();
      second.finished();
    },
  };
}

/** Limits the clients that wait for a request or receive its trace. */
export const MAX_WATCHERS = 8;

export interface WaitingWatcher<Subject> {
  count: number;
  matches(subject: Subject): boolean;
  begin(subject: Subject): TraceWatcher;
}

export interface TraceHub<Subject> {
  take(subject: Subject): TraceWatcher | undefined;
  /** Returns undefined if there are too many clients. The returned function removes the client and frees its slot. */
  wait(waiting: WaitingWatcher<Subject>): (() => void) | undefined;
  waiting(): number;
  isFull(): boolean;
}

export function createTraceHub<Subject>(): TraceHub<Subject> {
  const waiting: WaitingWatcher<Subject>[] = [];
  let open = 0;

  function remove(one: WaitingWatcher<Subject>): void {
    const index = waiting.indexOf(one);
    if (index >= 0) waiting.splice(index, 1);
  }

  return {
    take(subject) {
      if (waiting.length === 0) return undefined;
      const one = waiting.find((candidate) => candidate.matches(subject));
      if (!one) return undefined;
      one.count -= 1;
      if (one.count <= 0) remove(one);
      return one.begin(subject);
    },
    wait(one) {
      if (open >= MAX_WATCHERS) return undefined;
      open += 1;
      waiting.push(one);
      let withdrawn = false;
      return () => {
        if (withdrawn) return;
        withdrawn = true;
        open -= 1;
        remove(one);
      };
    },
    waiting: () => waiting.length,
    isFull: () => open >= MAX_WATCHERS,
  };
}

const TRACE = peerInput("gateway/kept-trace");

/** Beyond this number of events, expressions are omitted. */
const MAX_EVENTS = 500;

export interface KeptTraces {
  /** Records the events of one request. They are stored only if `keep` is called. */
  record(): TraceRecording;
  find(id: string): readonly TraceEvent[] | undefined;
  report(): { readonly traces: number; readonly bytes: number; readonly maxBytes: number };
}

export interface TraceRecording extends TraceWatcher {
  keep(id: string): void;
}

export function createKeptTraces(maxBytes: number): KeptTraces {
  /** Traces are stored as JSON, because its length counts against `maxBytes` and later changes must not affect it. */
  const kept = new Map<string, Buffer>();
  let bytes = 0;

  function drop(id: string): void {
    bytes -= kept.get(id)?.length ?? 0;
    kept.delete(id);
  }

  return {
    record() {
      let events: TraceEvent[] = [];
      let leftOut = 0;
      return {
        event(event) {
          if (events.length < MAX_EVENTS || event.message.type !== "cel") events.push(event);
          else leftOut += 1;
        },
        finished: () => undefined,
        keep(id) {
          const last = events.at(-1);
          if (leftOut > 0 && last)
            events.push({ ...last, message: { type: "policyEvent", kind: "leftOut", details: { cel: leftOut } } });
          const json = Buffer.from(JSON.stringify(events));
          events = [];
          drop(id);
          if (json.length > maxBytes) return;
          kept.set(id, json);
          bytes += json.length;
          for (const oldest of kept.keys()) {
            if (bytes <= maxBytes) break;
            drop(oldest);
          }
        },
      };
    },
    find(id) {
      const json = kept.get(id);
      return json === undefined ? undefined : (readJson(TRACE, json) as TraceEvent[]);
    },
    report: () => ({ traces: kept.size, bytes, maxBytes }),
  };
}
