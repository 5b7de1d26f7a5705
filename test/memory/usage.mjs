/**
 * Loaded into the gateway by `run.mjs --usage`: appends a line of JSON to the file each second, with memory in MiB, the
 * longest turn of the event loop, and the number and time of garbage collections.
 */
import { appendFileSync, writeFileSync } from "node:fs";
import { monitorEventLoopDelay, PerformanceObserver } from "node:perf_hooks";

const MIB = 1024 * 1024;
const file = process.env.MEMORY_USAGE_FILE;
const delay = monitorEventLoopDelay({ resolution: 5 });
let collections = 0;
let collectionMs = 0;

writeFileSync(file, "");
delay.enable();
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) {
    collections += 1;
    collectionMs += duration;
  }
}).observe({ entryTypes: ["gc"] });
setInterval(() => {
  const usage = Object.fromEntries(
    Object.entries(process.memoryUsage()).map(([name, bytes]) => [name, Math.round(bytes / MIB)]),
  );
  const line = {
    seconds: Math.round(process.uptime()),
    ...usage,
    longestTurnMs: Math.round(delay.max / 1e6),
    collections,
    collectionMs: Math.round(collectionMs),
  };
  appendFileSync(file, `${JSON.stringify(line)}\n`);
  delay.reset();
  collections = 0;
  collectionMs = 0;
}, 1000).unref();
