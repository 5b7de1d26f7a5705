/**
 * Detects that this machine had no CPU time for the run: how long the main threads of the gateway and of this process
 * were runnable and waited for a processor (Linux, `/proc/<pid>/schedstat`), and how late the timers of this process
 * were. A process that hangs or spins does not wait, so its failures still count.
 */
import { readFileSync } from "node:fs";

const TICK_MS = 100;
const NANOSECONDS_PER_MS = 1e6;

/** `waitedMs()` grows with each millisecond in which one of them wanted to run and could not. */
export function watchStarvation(pids) {
  let lateMs = 0;
  let dueMs = performance.now() + TICK_MS;
  let cpu = process.cpuUsage();
  setInterval(() => {
    const nowMs = performance.now();
    const { user, system } = process.cpuUsage(cpu);
    cpu = process.cpuUsage();
    // Late because of our own work does not count.
    lateMs += Math.max(0, nowMs - dueMs - (user + system) / 1000);
    dueMs = nowMs + TICK_MS;
  }, TICK_MS).unref();
  return { waitedMs: () => lateMs + pids.reduce((sum, pid) => sum + queuedMs(pid), 0) };
}

/** Returns 0 if the system does not report it, and for a process that has exited. */
function queuedMs(pid) {
  try {
    const [, queued] = readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ");
    return Number(queued) / NANOSECONDS_PER_MS;
  } catch {
    return 0;
  }
}
