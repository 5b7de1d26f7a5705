/**
 * Measures the longest blocking of this process's event loop. The smaller of wall-clock time and the thread's CPU
 * time counts, so that other programs and threads do not affect it.
 */
import { threadCpuMs } from "./cpu-time.ts";

export interface LoopTurns {
  /** Milliseconds of the longest turn since the last call. */
  longestMs(): number;
  stop(): void;
}

export function watchTurns(): LoopTurns {
  let running = true;
  let longest = 0;
  let at = { wall: performance.now(), cpu: threadCpuMs() };
  const turn = (): void => {
    const now = { wall: performance.now(), cpu: threadCpuMs() };
    longest = Math.max(longest, Math.min(now.wall - at.wall, now.cpu - at.cpu));
    at = now;
    if (running) setImmediate(turn);
  };
  setImmediate(turn);
  return {
    longestMs() {
      const found = longest;
      longest = 0;
      return found;
    },
    stop() {
      running = false;
    },
  };
}
