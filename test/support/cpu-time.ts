/**
 * CPU time in milliseconds, for tests of upper bounds. Wall-clock time would include other programs.
 */
import { openSync, readSync } from "node:fs";

/** Of this process with all its threads. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
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
