/**
 * Something that is read again and again while a page shows it and the tab is visible. The last good value stays
 * when a read fails, so that nothing jumps; who shows it can see that it is old.
 */
import { type ReadonlySignal, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { onReturn } from "./connection.ts";

export interface Polled<Value> {
  readonly value: ReadonlySignal<Value | undefined>;
  readonly error: ReadonlySignal<string | undefined>;
  /** Reads at once, for example after something was changed. */
  refresh(): Promise<void>;
  /** Keeps it fresh until the returned function is called. */
  watch(): () => void;
}

/** `interval` may depend on what is shown; it is asked after each read. */
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
    // A tab in the background costs the gateway nothing.
    if (document.visibilityState === "hidden") again();
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
        // What was read before the gateway went away may be of another process now; so may what is being read.
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
