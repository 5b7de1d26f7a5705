/**
 * CPU time in milliseconds, for tests of upper bounds. Wall-clock time would include other programs.
 */
import assert from "node:assert/strict";
import { openSync, readSync } from "node:fs";

/** Of this process with all its threads. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/**
 * Fails if the least CPU time of up to five runs reaches the limit. A run that is slow because the machine is, because V8
 * compiles, or because the garbage of other tests is collected, does not count.
 */
export function assertCpuBelow(limitMs: number, run: () => void, what = ""): void {
  let leastMs = Number.POSITIVE_INFINITY;
  for (let runs = 0; runs < 5 && leastMs >= limitMs; runs++) {
    const startMs = cpuMs();
    run();
    leastMs = Math.min(leastMs, cpuMs() - startMs);
  }
  assert.ok(leastMs < limitMs, `${what} took ${leastMs} ms of CPU time, and ${limitMs} ms is the limit`);
}

/**
 * Of the thread that calls first, where Linux counts it: threads that hash passwords or collect garbage beside it do not
 * hold its loop. Elsewhere of the process. The text stands alone, so that it can run in another process too.
 */
export const createThreadCpu = (open: typeof openSync, read: typeof readSync): (() => number) => {
  const ofProcess = (): number => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  };
  try {
    const file = open("/proc/thread-self/schedstat", "r");
    const buffer = Buffer.alloc(64);
    const ofThread = (): number =>
      Number.parseInt(buffer.toString("latin1", 0, read(file, buffer, 0, 64, 0)), 10) / 1e6;
    return ofThread() > 0 ? ofThread : ofProcess;
  } catch {
    return ofProcess;
  }
};

let threadCpu: (() => number) | undefined;

export function threadCpuMs(): number {
  threadCpu ??= createThreadCpu(openSync, readSync);
  return threadCpu();
}
