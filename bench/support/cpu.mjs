/**
 * Reads the CPU time of another process, including all threads, and its resident memory. Linux only.
 */
import { readdirSync, readFileSync } from "node:fs";

/** Microseconds on a CPU since the process began. */
export function cpuMicros(pid) {
  let nanos = 0n;
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    try {
      nanos += BigInt(readFileSync(`/proc/${pid}/task/${task}/schedstat`, "utf8").split(" ", 1)[0]);
    } catch {
      // A thread may end between the two reads.
    }
  }
  return Number(nanos / 1000n);
}

/** Microseconds of the main thread only. */
export function mainThreadMicros(pid) {
  const nanos = BigInt(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, "utf8").split(" ", 1)[0]);
  return Number(nanos / 1000n);
}

export function residentBytes(pid) {
  const pages = Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]);
  return pages * 4096;
}
