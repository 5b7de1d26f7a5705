/**
 * Registers metrics of the process (CPU, memory, file descriptors, and the version of the build) and of a thread (heap
 * and event loop delay). Values are read when they are scraped. Only the event loop delay is sampled continuously, by a timer of the
 * runtime.
 */
import { readdirSync, readFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import { processResidentBytes } from "../../base/process-memory.ts";
import type { Metrics } from "./metrics.ts";

const RESOLUTION_MS = 20;
const NS_PER_S = 1e9;
const QUANTILES = [0.5, 0.9, 0.99] as const;

interface ProcessMetricsOptions {
  readonly version: string;
  readonly startedAtMs: number;
}

export function registerProcessMetrics(metrics: Metrics, { version, startedAtMs }: ProcessMetricsOptions): void {
  metrics.gauge("gateway_build_info", "Always 1; the labels say which build runs.", () => [
    [{ version, node: process.version }, 1],
  ]);
  metrics.total("process_cpu_seconds_total", "CPU time of the process, user and system.", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  metrics.gauge("process_resident_memory_bytes", "Resident memory of the process.", () => processResidentBytes());
  metrics.gauge("process_open_fds", "Open file descriptors.", openDescriptors);
  metrics.gauge("process_max_fds", "File descriptors that the process may open.", maxDescriptors);
  metrics.gauge(
    "process_start_time_seconds",
    "When the process started, in seconds since the epoch.",
    () => startedAtMs / 1000,
  );
}

/** Returns a function that stops the sampling. */
export function registerThreadMetrics(metrics: Metrics, thread: string): () => void {
  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  metrics.gauge("nodejs_heap_used_bytes", "Used heap of a thread.", () => [
    [{ thread }, getHeapStatistics().used_heap_size],
  ]);
  metrics.gauge("nodejs_heap_limit_bytes", "Limit of the heap of a thread.", () => [
    [{ thread }, getHeapStatistics().heap_size_limit],
  ]);
  metrics.summary(
    "nodejs_eventloop_delay_seconds",
    "How late timers of the event loop ran since the last scrape, by quantile.",
    () => {
      // The measured delay includes the sampling interval.
      const seconds = (ns: number): number =>
        Math.max(0, (Number.isNaN(ns) ? 0 : ns) / NS_PER_S - RESOLUTION_MS / 1000);
      const rows = [
        ...QUANTILES.map((q) => [{ quantile: String(q), thread }, seconds(delay.percentile(q * 100))] as const),
        [{ quantile: "1", thread }, seconds(delay.count === 0 ? 0 : delay.max)] as const,
      ];
      delay.reset();
      return rows;
    },
  );
  return () => void delay.disable();
}

function openDescriptors(): Iterable<readonly [Record<string, string>, number]> {
  try {
    return [[{}, readdirSync("/proc/self/fd").length]];
  } catch {
    return [];
  }
}

function maxDescriptors(): Iterable<readonly [Record<string, string>, number]> {
  try {
    const found = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"));
    return found?.[1] === undefined ? [] : [[{}, Number(found[1])]];
  } catch {
    return [];
  }
}
