/**
 * The trace of one request: turns messages into events with times and hands them to its watcher.
 * A request that nobody watches has no Trace at all, so that not tracing costs one comparison.
 */
import type { Clock } from "../../base/clock.ts";
import type { Severity, TraceEvent, TraceMessage } from "./events.ts";

/** Takes events without ever making the request wait; it may drop them. */
export interface TraceWatcher {
  event(event: TraceEvent): void;
  finished(): void;
}

export interface Trace {
  /** A moment. */
  point(message: TraceMessage, severity?: Severity): void;
  /** Something that began at `startedMs` of the clock's monotonic time and ends now. */
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

/** One request, two watchers: neither knows of the other. */
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

/** More than this at once, waiting or being served, is somebody's mistake. */
export const MAX_WATCHERS = 8;

export interface WaitingWatcher<Subject> {
  /** How many requests it wants. */
  count: number;
  matches(subject: Subject): boolean;
  /** A request was found: who takes its events. */
  begin(subject: Subject): TraceWatcher;
}

export interface TraceHub<Subject> {
  /** Who watches this request, if somebody waits for one like it. */
  take(subject: Subject): TraceWatcher | undefined;
  /** Undefined when there are too many. The returned function withdraws and makes room. */
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
