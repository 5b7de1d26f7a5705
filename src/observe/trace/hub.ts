/**
 * Those who wait for a request to trace, first come, first served. While nobody waits, a request costs one
 * comparison; the subject (an Exchange) is opaque here.
 */
import type { TraceWatcher } from "./trace.ts";

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
