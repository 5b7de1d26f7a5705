/**
 * Reads the memory of the process. Node reads resident memory from a file, which fails while no file descriptor is
 * free, so that the last value counts.
 */
import { getHeapStatistics } from "node:v8";

export type ProcessMemory = Omit<NodeJS.MemoryUsage, "arrayBuffers"> & { readonly arrayBuffers: number | undefined };

let lastResidentBytes = 0;

export function processMemoryUsage(read: () => NodeJS.MemoryUsage = () => process.memoryUsage()): ProcessMemory {
  try {
    const usage = read();
    lastResidentBytes = usage.rss;
    return usage;
  } catch {
    const { total_heap_size: heapTotal, used_heap_size: heapUsed, external_memory: external } = getHeapStatistics();
    return {
      rss: Math.max(lastResidentBytes, heapTotal + external),
      heapTotal,
      heapUsed,
      external,
      arrayBuffers: undefined,
    };
  }
}

export function processResidentBytes(read: () => number = () => process.memoryUsage.rss()): number {
  try {
    lastResidentBytes = read();
  } catch {
    // The last value counts.
  }
  return lastResidentBytes;
}
