/**
 * A ring buffer of time slots with traffic statistics. It uses typed arrays, because there is one for each route.
 */
import { DURATION_BINS, type HistoryPoint, sumOfTraffic, type TrafficNumbers } from "./trace/traffic-numbers.ts";

/** The columns of a slot. A slot number of 0 means that the slot is empty. */
const NUMBER = 0;
const REQUESTS = 1;
const FAILED = 2;
const REJECTED = 3;
const ABORTED = 4;
const MCP_CALLS = 5;
const TOKENS = 6;
const COLUMNS = 7;
/** A packed slot has the columns, the cost, and the durations. */
export const PACKED_LENGTH = { min: COLUMNS + 1, max: COLUMNS + 2 + DURATION_BINS };
/** Slots hold only the bins between their shortest and their longest duration, and grow by this many. */
const GROWTH_BINS = 8;

export interface Ring {
  readonly slotMs: number;
  readonly slots: number;
  readonly counts: Uint32Array;
  readonly costs: Float64Array;
  /** The bins of each slot. They are allocated when the slot is used. */
  readonly bins: (SlotBins | undefined)[];
}

interface SlotBins {
  first: number;
  counts: Uint32Array;
}

export interface TrafficSample {
  readonly result: string;
  /** The bin of the duration (`durationBin`), which all rings share. */
  readonly bin: number;
  readonly isMcpCall: boolean;
  readonly tokens: number;
  readonly cost: number;
}

export interface RingSpan {
  readonly fromMs: number;
  readonly windowSeconds: number;
  /** The part of the window in which the gateway was running. */
  readonly coveredSeconds: number;
}

export function createRing({ slotMs, slots }: Pick<Ring, "slotMs" | "slots">): Ring {
  return { slotMs, slots, counts: new Uint32Array(slots * COLUMNS), costs: new Float64Array(slots), bins: [] };
}

export function addSample(ring: Ring, nowMs: number, sample: TrafficSample): void {
  const { counts, costs } = ring;
  const slot = openSlot(ring, Math.floor(nowMs / ring.slotMs));
  const at = slot * COLUMNS;
  add(counts, at + REQUESTS, 1);
  if (sample.result === "failed") add(counts, at + FAILED, 1);
  else if (sample.result === "rejected") add(counts, at + REJECTED, 1);
  else if (sample.result === "aborted") add(counts, at + ABORTED, 1);
  if (sample.isMcpCall) add(counts, at + MCP_CALLS, 1);
  if (sample.tokens > 0) add(counts, at + TOKENS, sample.tokens);
  if (sample.cost > 0) costs[slot] = (costs[slot] ?? 0) + sample.cost;
  addToBin(ring, slot, sample.bin, 1);
}

/** All windows begin at a slot of the coarsest ring, so that every ring covers the same time. */
export function spanOf(
  { slotMs, slots }: Pick<Ring, "slotMs" | "slots">,
  nowMs: number,
  knownSinceMs: number,
  rangeSeconds: number,
): RingSpan {
  const wanted = Math.min(slots, 1 + Math.ceil((rangeSeconds * 1000) / slotMs));
  const fromMs = (Math.floor(nowMs / slotMs) - wanted + 1) * slotMs;
  const secondsSince = (ms: number): number => Math.max(1, (nowMs - ms) / 1000);
  return {
    fromMs,
    windowSeconds: secondsSince(fromMs),
    coveredSeconds: secondsSince(Math.max(fromMs, knownSinceMs)),
  };
}

/** Returns the sum of all rings by slot. The rings must have slots of the same length. */
export function pointsIn(rings: readonly Ring[], slotMs: number, { fromMs }: RingSpan, nowMs: number): HistoryPoint[] {
  const points: HistoryPoint[] = [];
  for (let number = Math.floor(fromMs / slotMs); number * slotMs <= nowMs; number++)
    points.push({ at: number * slotMs, ...sumOfTraffic(rings.flatMap((ring) => slotNumbers(ring, number))) });
  return points;
}

export function totalIn(rings: readonly Ring[], { fromMs }: Pick<RingSpan, "fromMs">, nowMs: number): TrafficNumbers {
  return sumOfTraffic(
    rings.flatMap((ring) => numbersOfSlots(ring, fromMs, nowMs).flatMap((number) => slotNumbers(ring, number))),
  );
}

export function requestsIn(ring: Ring, { fromMs }: Pick<RingSpan, "fromMs">, nowMs: number): number[] {
  return numbersOfSlots(ring, fromMs, nowMs).map((number) => {
    const at = slotOf(ring, number) * COLUMNS;
    return ring.counts[at + NUMBER] === number ? (ring.counts[at + REQUESTS] ?? 0) : 0;
  });
}

function numbersOfSlots({ slotMs, slots }: Ring, fromMs: number, nowMs: number): number[] {
  const last = Math.floor(nowMs / slotMs);
  const first = Math.max(last - slots + 1, Math.floor(fromMs / slotMs));
  return Array.from({ length: last - first + 1 }, (_unused, i) => first + i);
}

export function packRing(ring: Ring, nowMs: number): number[][] {
  return numbersOfSlots(ring, 0, nowMs).flatMap((number) => {
    const slot = slotOf(ring, number);
    const at = slot * COLUMNS;
    if (ring.counts[at + NUMBER] !== number) return [];
    return [[...ring.counts.subarray(at, at + COLUMNS), ring.costs[slot] ?? 0, ...durationsOf(ring, slot)]];
  });
}

/** Adds packed slots and ignores outdated and invalid ones. Returns the start of the oldest slot that was added. */
export function unpackRing(ring: Ring, nowMs: number, packed: readonly number[][]): number | undefined {
  const last = Math.floor(nowMs / ring.slotMs);
  let oldest: number | undefined;
  for (const packedSlot of packed) {
    const number = packedSlot[NUMBER] ?? 0;
    const isOutdated = !Number.isInteger(number) || number > last || number <= last - ring.slots;
    if (isOutdated || (ring.counts[slotOf(ring, number) * COLUMNS] ?? 0) > number) continue;
    const slot = openSlot(ring, number);
    for (let column = REQUESTS; column < COLUMNS; column++)
      add(ring.counts, slot * COLUMNS + column, packedSlot[column] ?? 0);
    ring.costs[slot] = (ring.costs[slot] ?? 0) + (packedSlot[COLUMNS] ?? 0);
    const [first = 0, ...bins] = packedSlot.slice(COLUMNS + 1);
    for (const [i, count] of bins.entries())
      if (Number.isInteger(first) && first + i < DURATION_BINS && count > 0) addToBin(ring, slot, first + i, count);
    oldest = Math.min(oldest ?? Number.POSITIVE_INFINITY, number * ring.slotMs);
  }
  return oldest;
}

/** Returns nothing if the slot is empty. */
function slotNumbers(ring: Ring, number: number): TrafficNumbers[] {
  const slot = slotOf(ring, number);
  const column = (index: number): number => ring.counts[slot * COLUMNS + index] ?? 0;
  if (column(NUMBER) !== number) return [];
  return [
    {
      requests: column(REQUESTS),
      failed: column(FAILED),
      rejected: column(REJECTED),
      aborted: column(ABORTED),
      mcpCalls: column(MCP_CALLS),
      tokens: column(TOKENS),
      cost: ring.costs[slot] ?? 0,
      p50Ms: null,
      p95Ms: null,
      p99Ms: null,
      durations: durationsOf(ring, slot),
    },
  ];
}

function durationsOf(ring: Ring, slot: number): number[] {
  const bins = ring.bins[slot];
  const used = bins?.counts.findLastIndex((count) => count > 0) ?? -1;
  return bins === undefined || used < 0 ? [] : [bins.first, ...bins.counts.subarray(0, used + 1)];
}

function openSlot(ring: Ring, number: number): number {
  const slot = slotOf(ring, number);
  const at = slot * COLUMNS;
  if (ring.counts[at + NUMBER] !== number) {
    ring.counts.fill(0, at, at + COLUMNS);
    ring.counts[at + NUMBER] = number;
    ring.costs[slot] = 0;
    ring.bins[slot] = undefined;
  }
  return slot;
}

function addToBin(ring: Ring, slot: number, bin: number, count: number): void {
  let bins = ring.bins[slot];
  if (bins === undefined) {
    const first = bin - (bin % GROWTH_BINS);
    bins = ring.bins[slot] = { first, counts: new Uint32Array(GROWTH_BINS) };
  } else if (bin < bins.first || bin >= bins.first + bins.counts.length) grow(bins, bin);
  add(bins.counts, bin - bins.first, count);
}

function grow(bins: SlotBins, bin: number): void {
  const { first, counts } = bins;
  const from = Math.min(first, bin - (bin % GROWTH_BINS));
  const to = Math.max(first + counts.length, bin - (bin % GROWTH_BINS) + GROWTH_BINS);
  bins.first = from;
  bins.counts = new Uint32Array(to - from);
  bins.counts.set(counts, first - from);
}

function slotOf({ slots }: Pick<Ring, "slots">, number: number): number {
  return number % slots;
}

function add(counts: Uint32Array, at: number, value: number): void {
  counts[at] = (counts[at] ?? 0) + value;
}
