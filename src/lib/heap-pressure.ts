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
const MIB = 1024 * 1024;

/**
 * Garbage does not count for long: V8 collects old objects halfway between what the last collection left and the
 * limit at the latest, so 95 % in use means that at least 90 % were left.
 */
export function watchHeap(
  clock: Clock,
  changed: (level: HeapLevel, size: HeapSize) => void,
  read: () => HeapSize,
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
 * The old generation: the share of the whole heap says little, because the young generation's part of the limit cannot
 * be used for anything that lives long. With `--max-old-space-size=128` V8 gives up when the whole is 72 % full (Node
 * 20) or 39 % (Node 24).
 */
export function oldGeneration(nodeFlags: readonly string[]): () => HeapSize {
  const limitBytes = flaggedLimit(nodeFlags) ?? defaultLimit(getHeapStatistics().heap_size_limit);
  return () => {
    let usedBytes = 0;
    for (const { space_name, space_used_size } of getHeapSpaceStatistics())
      if (!space_name.startsWith("new_")) usedBytes += space_used_size;
    return { usedBytes, limitBytes };
  };
}

function flaggedLimit(nodeFlags: readonly string[]): number | undefined {
  const found = [...nodeFlags.join(" ").matchAll(/--max[-_]old[-_]space[-_]size[= ](\d+)/g)].at(-1);
  return found === undefined || Number(found[1]) === 0 ? undefined : Number(found[1]) * MIB;
}

/**
 * Without a flag the young generation has three times 16 MiB (64 in Node 24, 32 in Node 26), less on small machines.
 * Where that is in doubt the limit is set rather too high: refusing without need would be worse than not at all.
 */
function defaultLimit(wholeBytes: number): number {
  const major = Number(process.versions.node.split(".", 1)[0]);
  const semiSpaceMib = major >= 26 ? 32 : major >= 24 ? 64 : 16;
  return Math.max(wholeBytes - 3 * semiSpaceMib * MIB, wholeBytes * 0.95);
}
