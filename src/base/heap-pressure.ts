/**
 * How close V8's heap is to its limit, and the process to that of its container or machine, looked at by a timer, so that
 * a request only reads a word. Beyond the one V8 ends the process, beyond the other the system does, and every request
 * with it: refusing some in time is the smaller harm.
 */
import { totalmem } from "node:os";
import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Clock } from "./clock.ts";

/** `tight`: connections are not kept. `full`: new requests are rejected. */
export const HEAP_LEVELS = ["normal", "tight", "full"] as const;
export type HeapLevel = (typeof HEAP_LEVELS)[number];

export interface HeapPressure {
  readonly level: HeapLevel;
  stop(): void;
}

export interface HeapSize {
  /** For log lines; default: V8's heap. */
  readonly of?: "heap" | "process";
  readonly usedBytes: number;
  readonly limitBytes: number;
}

const LOOK_EVERY_MS = 250;
const TIGHT = 0.9;
const FULL = 0.95;
const MIB = 1024 * 1024;
/**
 * While requests are refused little is allocated, and V8 sees no reason to collect: then it is asked to, this often. The
 * same holds, less urgently, for a gateway without traffic that stays just below: it would close connections for ever.
 */
const COLLECT_EVERY_LOOKS = { normal: 0, tight: 40, full: 8 };
/** The pressure may be over at the next look. */
const COLLECT_AT_LOOK = 2;
/** While memory is short, `relieve` is called at the first look and then this often, so that a collection can follow it. */
const RELIEVE_EVERY_LOOKS = 4;
/** A collection of a large heap takes seconds: then most of the time is left to the requests. */
const COLLECT_AT_MOST_SHARE = 0.1;
/** What Node takes besides the heap and buffers: code, stacks, TLS. */
const NATIVE_BYTES = 64 * MIB;

/**
 * Garbage does not count for long: V8 collects old objects halfway between what the last collection left and the
 * limit at the latest, so 95 % in use means that at least 90 % were left.
 */
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
    const next = levelOf(size.usedBytes / size.limitBytes);
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

/** The level that another thread shares (`MemoryBudget.sharedLevel`). */
export function sharedHeapLevel(shared: SharedArrayBuffer): () => HeapLevel {
  const level = new Int32Array(shared);
  return () => HEAP_LEVELS[Atomics.load(level, 0)] ?? "normal";
}

/** The store is in the heap of another thread: requests are rejected also while that is full. */
export function withSharedLevel(own: HeapPressure, shared: () => HeapLevel): HeapPressure {
  return {
    get level() {
      const other = shared();
      return HEAP_LEVELS.indexOf(other) > HEAP_LEVELS.indexOf(own.level) ? other : own.level;
    },
    stop: own.stop,
  };
}

function levelOf(share: number): HeapLevel {
  if (share >= FULL) return "full";
  return share >= TIGHT ? "tight" : "normal";
}

/** Whichever is closer to its limit. */
export function tightest(...reads: readonly (() => HeapSize)[]): () => HeapSize {
  return () =>
    reads
      .map((read) => read())
      .reduce((one, other) => (other.usedBytes / other.limitBytes > one.usedBytes / one.limitBytes ? other : one));
}

export interface ProcessMemory {
  readonly rss: number;
  readonly heapTotal: number;
  readonly external: number;
}

/**
 * The whole process, bodies and other buffers outside of the heap included, against what its container (or else the
 * machine) has. Resident memory alone would not do: what was freed may stay resident for good, although it can be used
 * again, and the gateway would refuse for ever.
 */
export function processMemory(
  read: () => ProcessMemory = () => process.memoryUsage(),
  limitBytes: number = memoryLimit(process.constrainedMemory() ?? 0, totalmem()),
): () => HeapSize {
  return () => {
    const { rss, heapTotal, external } = read();
    return { of: "process", usedBytes: Math.min(rss, heapTotal + external + NATIVE_BYTES), limitBytes };
  };
}

/** Without a limit the system says 0, or a number beyond all memory. */
export function memoryLimit(containerBytes: number, machineBytes: number): number {
  return containerBytes > 0 && containerBytes < machineBytes ? containerBytes : machineBytes;
}

/**
 * The old generation: the share of the whole heap says little, because the young generation's part of the limit cannot
 * be used for anything that lives long. With `--max-old-space-size=128` V8 gives up when the whole is 72 % full (Node
 * 20) or 39 % (Node 24). Large new objects count: the next collection moves all that live to the old ones at once.
 */
export function oldGeneration(nodeFlags: readonly string[]): () => HeapSize {
  const limitBytes = flaggedLimit(nodeFlags) ?? defaultLimit(getHeapStatistics().heap_size_limit);
  return () => {
    let usedBytes = 0;
    for (const { space_name, space_used_size } of getHeapSpaceStatistics())
      if (space_name !== "new_space") usedBytes += space_used_size;
    return { usedBytes, limitBytes };
  };
}

/** `options`: the value of `NODE_OPTIONS`. */
export function nodeFlags(options = ""): string[] {
  return [options, ...process.execArgv];
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

let collect: (() => void) | undefined;

export function collectGarbage(): void {
  collect ??= findCollector();
  collect();
}

/** V8 gives its collector only to contexts that are made while this flag is set. */
function findCollector(): () => void {
  setFlagsFromString("--expose-gc");
  const found: unknown = runInNewContext("globalThis.gc");
  setFlagsFromString("--no-expose-gc");
  return typeof found === "function" ? () => void found() : () => undefined;
}
