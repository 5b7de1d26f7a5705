/**
 * The events that the terminal UI shows, and where its reader stands in them. Events come from outside of React, so
 * the screen subscribes.
 */
import type { TraceEvent } from "../trace/events.ts";

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
  let state: TraceState = { events: [], status: "waiting for trace data", isComplete: false };
  const listeners = new Set<() => void>();
  const change = (next: Partial<TraceState>): void => {
    state = { ...state, ...next };
    for (const listener of listeners) listener();
  };
  return {
    state: () => state,
    subscribe(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    add: (event) => change({ events: [...state.events, event], status: `${state.events.length + 1} events` }),
    status: (text) => change({ status: text.split("\n", 1)[0] ?? "" }),
    complete: () => change({ status: `${state.events.length} events, complete`, isComplete: true }),
  };
}
