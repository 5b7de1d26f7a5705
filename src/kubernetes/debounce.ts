/**
 * Coalesces changes into one run of an action. A run starts after a quiet interval, or after `longestMs` if changes
 * continue, but not before the previous run has ended.
 */
import type { Clock, Timer } from "../base/clock.ts";

export interface Debounced {
  soon(): void;
  stop(): void;
}

export function debounce(
  clock: Clock,
  quietMs: number,
  longestMs: number,
  action: () => Promise<void>,
  failed: (error: unknown) => void,
): Debounced {
  let timer: Timer | undefined;
  let firstMs: number | undefined;
  let isRunning = false;
  let isStopped = false;

  function run(): void {
    timer = undefined;
    if (isStopped) return;
    if (isRunning) return;
    firstMs = undefined;
    isRunning = true;
    action()
      .catch(failed)
      .finally(() => {
        isRunning = false;
        if (firstMs !== undefined) soon();
      });
  }

  function soon(): void {
    if (isStopped) return;
    const nowMs = clock.monotonicMs();
    firstMs ??= nowMs;
    if (isRunning) return;
    timer?.cancel();
    timer = clock.after(Math.max(0, Math.min(quietMs, firstMs + longestMs - nowMs)), run);
  }

  return {
    soon,
    stop() {
      isStopped = true;
      timer?.cancel();
    },
  };
}
