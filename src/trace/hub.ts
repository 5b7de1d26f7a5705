/**
 * Those who wait for a request to trace, first come, first served. While nobody waits, a request costs one
 * comparison; the subject (an Exchange) is opaque here.
 */
import type { Clock } from "../lib/clock.ts";
import { createTrace, type Trace, type TraceWatcher } from "./trace.ts";

/** More than this at once is somebody's mistake. */
export const MAX_WATCHERS = 8;

export interface WaitingWatcher<Subject> {
  /** How many requests it wants. */
  count: number;
  matches(subject: Subject): boolean;
  readonly watcher: TraceWatcher;
}

export interface TraceHub<Subject> {
  /** The trace for this request, if somebody waits for one like it. */
  take(subject: Subject): Trace | undefined;
  /** False when there are too many. The returned function withdraws. */
  wait(waiting: WaitingWatcher<Subject>): (() => void) | undefined;
  waiting(): number;
}

export function createTraceHub<Subject>(clock: Clock): TraceHub<Subject> {
  const waiting: WaitingWatcher<Subject>[] = [];

  function remove(one: WaitingWatcher<Subject>): void {
    const index = waiting.indexOf(one);
    if (index >= 0) waiting.splice(index, 1);
  }

  return {
    take(subject) {
      if (waiting.length === 0) return undefined;
      const one = waiting.find(({ matches }) => matches(subject));
      if (!one) return undefined;
      one.count -= 1;
      if (one.count <= 0) remove(one);
      return createTrace(clock, one.watcher);
    },
    wait(one) {
      if (waiting.length >= MAX_WATCHERS) return undefined;
      waiting.push(one);
      return () => remove(one);
    },
    waiting: () => waiting.length,
  };
}
