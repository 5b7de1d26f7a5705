/**
 * Measures on a timer how close V8's heap is to its limit, and how close the process is to the memory limit of its
 * container or machine.
 */
import { totalmem } from "node:os";
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Clock } from "./clock.ts";
import { type ProcessMemory, processMemoryUsage } from "./process-memory.ts";

export const HEAP_LEVELS = ["normal", "tight", "full"] as const;
export type HeapLevel = (typeof HEAP_LEVELS)[number];

export interface HeapPressure {
  readonly level: HeapLevel;
  stop(): void;
}

export interface HeapSize {
  readonly of?: "heap" | "process";
  readonly usedBytes: number;
  readonly limitBytes: number;
}

const LOOK_EVERY_MS = 250;
const TIGHT = 0.9;
const FULL = 0.95;
const MIB = 1024 * 1024;
/**
 * While memory is short, a collection is forced once per this number of measurements, because V8 may not collect while
 * little is allocated.
 */
const COLLECT_EVERY_LOOKS = { normal: 0, tight: 40, full: 8 };
const COLLECT_AT_LOOK = 2;
const RELIEVE_EVERY_LOOKS = 4;
/** Forced collections use at most this share of the time. */
const COLLECT_AT_MOST_SHARE = 0.1;
const NATIVE_BYTES = 64 * MIB;

export function watchHeap(
  clock: Clock,
  changed: (level: HeapLevel, size: HeapSize) => void,
  read: () => HeapSize,
  collect: () => void = collectGarbage,
  relieve: (level: HeapLevel) => void = () => undefined,
): HeapPressure {
  let level: HeapLevel = "normal";
  let looks = 0;
  let collectNextMs = 0;
  const timer = clock.every(LOOK_EVERY_MS, () => {
    const size = read();
    const next = heapLevel(size.usedBytes / size.limitBytes);
    looks = next === level ? looks + 1 : 1;
    if (
      next !== "normal" &&
      looks % COLLECT_EVERY_LOOKS[next] === COLLECT_AT_LOOK &&
      clock.monotonicMs() >= collectNextMs
    ) {
      const beganMs = clock.monotonicMs();
      collect();
      const endedMs = clock.monotonicMs();
      collectNextMs = endedMs + (endedMs - beganMs) / COLLECT_AT_MOST_SHARE;
    }
    const isChanged = next !== level;
    level = next;
    if (isChanged) changed(level, size);
    if (isChanged || (level !== "normal" && looks % RELIEVE_EVERY_LOOKS === 0)) relieve(level);
  });
  return {
    get level() {
      return level;
    },
    stop: () => timer.cancel(),
  };
}

/** Reads the level that another thread shares (`MemoryBudget.sharedLevel`). */
export function sharedHeapLevel(shared: SharedArrayBuffer): () => HeapLevel {
  const level = new Int32Array(shared);
  return () => HEAP_LEVELS[Atomics.load(level, 0)] ?? "normal";
}

/** Returns a `HeapPressure` with the higher of both levels. */
export function withSharedLevel(own: HeapPressure, shared: () => HeapLevel): HeapPressure {
  return {
    get level() {
      const other = shared();
      return HEAP_LEVELS.indexOf(other) > HEAP_LEVELS.indexOf(own.level) ? other : own.level;
    },
    stop: own.stop,
  };
}

function heapLevel(share: number): HeapLevel {
  if (share >= FULL) return "full";
  return share >= TIGHT ? "tight" : "normal";
}

/** Returns a function that reads the measurement closest to its limit. */
export function tightest(...reads: readonly (() => HeapSize)[]): () => HeapSize {
  return () =>
    reads
      .map((read) => read())
      .reduce((one, other) => (other.usedBytes / other.limitBytes > one.usedBytes / one.limitBytes ? other : one));
}

/**
 * Measures the whole process against the memory of its container or machine. Resident memory alone is misleading,
 * because freed memory can stay resident although it is reusable.
 */
export function processMemory(
  read: () => Pick<ProcessMemory, "rss" | "heapTotal" | "external"> = processMemoryUsage,
  limitBytes: number = memoryLimit(process.constrainedMemory() ?? 0, totalmem()),
): () => HeapSize {
  return () => {
    const { rss, heapTotal, external } = read();
    return { of: "process", usedBytes: Math.min(rss, heapTotal + external + NATIVE_BYTES), limitBytes };
  };
}

/** A system without a limit reports 0 or a number larger than all memory. */
export function memoryLimit(containerBytes: number, machineBytes: number): number {
  return containerBytes > 0 && containerBytes < machineBytes ? containerBytes : machineBytes;
}

/** Measures the old generation, because long-lived objects cannot use the young generation's part of the heap limit. */
export function oldGeneration(nodeFlags: readonly string[]): () => HeapSize {
  const limitBytes = flaggedLimit(nodeFlags) ?? defaultLimit(getHeapStatistics().heap_size_limit);
  return () => {
    let usedBytes = 0;
    for (const { space_name, space_used_size } of getHeapSpaceStatistics())
      if (space_name !== "new_space") usedBytes += space_used_size;
    return { usedBytes, limitBytes };
  };
}

/** `options` is the value of `NODE_OPTIONS`. */
export function nodeFlags(options = ""): string[] {
  return [options, ...process.execArgv];
}

function flaggedLimit(nodeFlags: readonly string[]): number | undefined {
  const found = [...nodeFlags.join(" ").matchAll(/--max[-_]old[-_]space[-_]size[= ](\d+)/g)].at(-1);
  return found === undefined || Number(found[1]) === 0 ? undefined : Number(found[1]) * MIB;
}

/** Subtracts the three semispaces of the young generation, but at most 5%. */
function defaultLimit(wholeBytes: number): number {
  const major = Number(process.versions.node.split(".", 1)[0]);
  const semiSpaceMib = major >= 26 ? 32 : major >= 24 ? 64 : 16;
  return Math.max(wholeBytes - 3 * semiSpaceMib * MIB, wholeBytes * 0.95);
}

let collect: (() => void) | undefined;

export function collectGarbage(): void {
  collect ??= findCollector();
  collect();
}

/** V8 exposes its collector only to contexts created while this flag is set. */
function findCollector(): () => void {
  setFlagsFromString("--expose-gc");
  const found: unknown = runInNewContext("globalThis.gc");
  setFlagsFromString("--no-expose-gc");
  return typeof found === "function" ? () => void found() : () => undefined;
}
