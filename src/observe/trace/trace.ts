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
