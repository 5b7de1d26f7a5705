/**
 * Reports the test files that take the most CPU. Each test process writes the user and system time of its files,
 * including child processes that exited, next to its entry; the end of the run prints the sum and the most expensive
 * files. Linux only; does nothing on other platforms.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const SUFFIX = ".cpu.json";
/** Ticks of /proc per second; the same on every Linux that Node runs on. */
const TICKS = 100;
const SHOWN = 10;

/** CPU seconds of this process and its exited children; undefined if the system does not report them. */
export function cpuSeconds() {
  try {
    const text = readFileSync("/proc/self/stat", "latin1");
    // The process name, in brackets, may contain spaces; the counters follow it.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS;
  } catch {
    return undefined;
  }
}

/** Writes the CPU time of the files of this process next to its entry. */
export function noteCpu(entry, secondsByName) {
  writeFileSync(`${entry}${SUFFIX}`, JSON.stringify(Object.fromEntries(secondsByName)));
}

/** Seconds by file, as written by the processes of a folder of entries. */
export function readCpu(folder) {
  const seconds = new Map();
  for (const name of readdirSync(folder).filter((file) => file.endsWith(SUFFIX)))
    for (const [file, taken] of Object.entries(JSON.parse(readFileSync(join(folder, name), "utf8"))))
      seconds.set(file, (seconds.get(file) ?? 0) + taken);
  return seconds;
}

/** Lines for the end of a run: the sum and the most expensive files. */
export function cpuReport(seconds) {
  if (seconds.size === 0) return [];
  const sum = [...seconds.values()].reduce((a, b) => a + b, 0);
  const most = [...seconds].sort(([, a], [, b]) => b - a).slice(0, Number(process.env.TEST_CPU_FILES ?? SHOWN));
  return [
    "",
    `${(sum / 60).toFixed(1)} minutes of CPU time, most of it in (TEST_CPU_FILES=500 names more):`,
    ...most.map(([file, taken]) => `${taken.toFixed(1).padStart(7)} s  ${file}`),
    "",
  ];
}
