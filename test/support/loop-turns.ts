/**
 * The longest time for which this process's loop did not turn, for tests that nothing blocks it. Time that other
 * programs and threads took does not count: of the clock on the wall and the thread's CPU time, the smaller one is what was really spent here.
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
