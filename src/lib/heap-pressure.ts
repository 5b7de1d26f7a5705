/**
 * How close V8's heap is to its limit, looked at by a timer, so that a request only reads a word. Beyond the limit
 * V8 ends the process and every request with it: refusing some in time is the smaller harm.
 */
import { getHeapSpaceStatistics, getHeapStatistics } from "node:v8";
import type { Clock } from "./clock.ts";

/** `tight`: connections are not kept. `full`: new requests are refused. */
export type HeapLevel = "normal" | "tight" | "full";

export interface HeapPressure {
  readonly level: HeapLevel;
  stop(): void;
}

export interface HeapSize {
  readonly usedBytes: number;
  readonly limitBytes: number;
}

const LOOK_EVERY_MS = 250;
const TIGHT = 0.9;
const FULL = 0.95;
/** Part of V8's limit, but out of reach for what stays: three semi-spaces of 16 MiB, V8's default. */
const YOUNG_BYTES = 48 * 1024 * 1024;

/**
 * Garbage does not count for long: V8 collects old objects halfway between what the last collection left and the
 * limit at the latest, so 95 % in use means that at least 90 % were left.
 */
export function watchHeap(
  clock: Clock,
  changed: (level: HeapLevel, size: HeapSize) => void,
  read: () => HeapSize = oldGeneration,
): HeapPressure {
  let level: HeapLevel = "normal";
  const timer = clock.every(LOOK_EVERY_MS, () => {
    const size = read();
    const next = levelOf(size.usedBytes / size.limitBytes);
    if (next === level) return;
    level = next;
    changed(level, size);
  });
  return {
    get level() {
      return level;
    },
    stop: () => timer.cancel(),
  };
}

function levelOf(share: number): HeapLevel {
  if (share >= FULL) return "full";
  return share >= TIGHT ? "tight" : "normal";
}

/**
 * The share of the whole heap says little: with `--max-old-space-size=128` V8 gives up when it is 72 % full, because
 * the young generation's part cannot be used for anything that lives long.
 */
function oldGeneration(): HeapSize {
  let usedBytes = 0;
  for (const { space_name, space_used_size } of getHeapSpaceStatistics())
    if (!space_name.startsWith("new_")) usedBytes += space_used_size;
  const whole = getHeapStatistics().heap_size_limit;
  return { usedBytes, limitBytes: Math.max(whole - YOUNG_BYTES, whole / 2) };
}
