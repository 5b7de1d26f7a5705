/**
 * The events that the terminal UI shows, and where its reader stands in them. Events come from outside of React, so
 * the screen subscribes.
 */
import type { TraceEvent } from "../../trace/events.ts";

export interface TraceState {
  readonly events: readonly TraceEvent[];
  readonly status: string;
  readonly isComplete: boolean;
}

export interface TraceStore {
  state(): TraceState;
  subscribe(listener: () => void): () => void;
  add(event: TraceEvent): void;
  status(text: string): void;
  complete(): void;
}

export function createTraceStore(): TraceStore {
  const events: TraceEvent[] = [];
  let status = "waiting for trace data";
  let isComplete = false;
  const listeners = new Set<() => void>();
  /** What was last shown; made anew only when somebody looks after a change. */
  let seen: TraceState | undefined;
  let isTelling = false;
  const counted = (): string => (events.length === 1 ? "1 event" : `${events.length} events`);
  const changed = (): void => {
    seen = undefined;
    if (isTelling) return;
    isTelling = true;
    // A saved trace comes all at once: thousands of events are one change of the screen.
    queueMicrotask(() => {
      isTelling = false;
      for (const listener of listeners) listener();
    });
  };
  return {
    state() {
      seen ??= { events: [...events], status, isComplete };
      return seen;
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    add(event) {
      events.push(event);
      status = counted();
      changed();
    },
    status(text) {
      status = text.split("\n", 1)[0] ?? "";
      changed();
    },
    complete() {
      status = `${counted()}, complete`;
      isComplete = true;
      changed();
    },
  };
}
