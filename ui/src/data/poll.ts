/**
 * Polls a value while a page shows it and the tab is visible. If a read fails, the last value is kept and an error is
 * set.
 */
import { type ReadonlySignal, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { onReturn } from "./connection.ts";

export interface Polled<Value> {
  readonly value: ReadonlySignal<Value | undefined>;
  readonly error: ReadonlySignal<string | undefined>;
  /** Reads the value immediately, for example after a change. */
  refresh(): Promise<void>;
  /** Polls until the returned function is called. */
  watch(): () => void;
}

/** If `interval` is a function, it is called after each read. */
export function createPoll<Value>(read: () => Promise<Value>, interval: number | (() => number)): Polled<Value> {
  const value = signal<Value | undefined>(undefined);
  const error = signal<string | undefined>(undefined);
  let watchers = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let running: Promise<void> | undefined;
  let stopListening: (() => void) | undefined;

  async function readOnce(): Promise<void> {
    try {
      value.value = await read();
      error.value = undefined;
    } catch (problem) {
      error.value = (problem as Error).message;
    }
  }

  function refresh(): Promise<void> {
    running ??= readOnce().finally(() => {
      running = undefined;
    });
    return running;
  }

  function loop(): void {
    if (watchers === 0) return;
    const again = (): void => {
      timer = setTimeout(loop, typeof interval === "number" ? interval : interval());
    };
    // A tab that is opened in the background still reads once, so that it is complete when the user looks at it.
    if (document.visibilityState === "hidden" && value.peek() !== undefined) again();
    else void refresh().finally(again);
  }

  return {
    value,
    error,
    refresh,
    watch() {
      watchers += 1;
      if (watchers === 1) {
        loop();
        // After an outage, the value may come from an earlier process, so it is read again.
        stopListening = onReturn(() => void Promise.resolve(running).then(refresh));
      }
      return () => {
        watchers -= 1;
        if (watchers > 0) return;
        if (timer !== undefined) clearTimeout(timer);
        stopListening?.();
      };
    },
  };
}

export function usePoll<Value>(poll: Polled<Value>): Value | undefined {
  useEffect(() => poll.watch(), [poll]);
  return poll.value.value;
}
