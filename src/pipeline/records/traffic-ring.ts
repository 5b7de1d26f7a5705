/**
 * A ring buffer of time slots with traffic statistics. It uses typed arrays, because there is one for each route.
 */
import type { HistoryPoint, TrafficNumbers } from "../../observe/trace/request-record.ts";

/** These are the upper bounds of the duration histogram, with five bins per decade from 1 ms to 100 s. */
const BOUNDS_MS: readonly number[] = Array.from({ length: 26 }, (_unused, i) => 10 ** (i / 5));
const BINS = BOUNDS_MS.length + 1;

/** The columns of a slot. A slot number of 0 means that the slot is empty. */
const NUMBER = 0;
const REQUESTS = 1;
const FAILED = 2;
const REJECTED = 3;
const MCP_CALLS = 4;
const TOKENS = 5;
const FIRST_BIN = 6;
const COLUMNS = FIRST_BIN + BINS;
/** A packed slot has the number, five counts, the cost, and pairs of a bin and its count. */
export const PACKED_LENGTH = { min: 7, max: 7 + 2 * BINS };

export interface Ring {
  readonly slotMs: number;
  readonly slots: number;
  readonly counts: Uint32Array;
  readonly costs: Float64Array;
}

export interface TrafficSample {
  readonly result: string;
  readonly durationMs: number;
  readonly isMcpCall: boolean;
  readonly tokens: number;
  readonly cost: number;
}

export interface RingSpan {
  readonly slotSeconds: number;
  readonly first: number;
  readonly last: number;
  /** The part of the span in which the gateway was running. */
  readonly coveredSeconds: number;
}

export function createRing({ slotMs, slots }: Pick<Ring, "slotMs" | "slots">): Ring {
  return { slotMs, slots, counts: new Uint32Array(slots * COLUMNS), costs: new Float64Array(slots) };
}

export function addSample(ring: Ring, nowMs: number, sample: TrafficSample): void {
  const { counts } = ring;
  const at = openSlot(ring, Math.floor(nowMs / ring.slotMs));
  add(counts, at + REQUESTS, 1);
  if (sample.result === "failed") add(counts, at + FAILED, 1);
  else if (sample.result === "rejected") add(counts, at + REJECTED, 1);
  if (sample.isMcpCall) add(counts, at + MCP_CALLS, 1);
  if (sample.tokens > 0) add(counts, at + TOKENS, sample.tokens);
  if (sample.cost > 0) ring.costs[at / COLUMNS] = (ring.costs[at / COLUMNS] ?? 0) + sample.cost;
  add(counts, at + FIRST_BIN + histogramBin(sample.durationMs), 1);
}

export function spanOf(
  { slotMs, slots }: Pick<Ring, "slotMs" | "slots">,
  nowMs: number,
  knownSinceMs: number,
  rangeSeconds: number,
): RingSpan {
  const last = Math.floor(nowMs / slotMs);
  const wanted = Math.min(slots, Math.max(1, Math.ceil((rangeSeconds * 1000) / slotMs)));
  const first = Math.max(last - wanted + 1, Math.floor(knownSinceMs / slotMs));
  const coveredMs = nowMs - Math.max(first * slotMs, knownSinceMs);
  return { slotSeconds: slotMs / 1000, first, last, coveredSeconds: Math.max(1, coveredMs / 1000) };
}

/** Returns the sum of all rings, which must have slots of the same length. */
export function pointsIn(rings: readonly Ring[], { slotSeconds, first, last }: RingSpan): HistoryPoint[] {
  const points: HistoryPoint[] = [];
  for (let number = first; number <= last; number++) {
    const sum = createSum();
    for (const ring of rings) addSlot(sum, ring, number);
    points.push({ at: number * slotSeconds * 1000, ...numbersOf(sum) });
  }
  return points;
}

export function totalIn(rings: readonly Ring[], { first, last }: RingSpan): TrafficNumbers {
  const sum = createSum();
  for (const ring of rings) for (let number = first; number <= last; number++) addSlot(sum, ring, number);
  return numbersOf(sum);
}

export function requestsIn(ring: Ring, { first, last }: RingSpan): number[] {
  const values: number[] = [];
  for (let number = first; number <= last; number++) {
    const at = slotStart(ring, number);
    values.push(ring.counts[at + NUMBER] === number ? (ring.counts[at + REQUESTS] ?? 0) : 0);
  }
  return values;
}

export function packRing(ring: Ring, nowMs: number): number[][] {
  const last = Math.floor(nowMs / ring.slotMs);
  const packed: number[][] = [];
  for (let number = last - ring.slots + 1; number <= last; number++) {
    const at = slotStart(ring, number);
    if (ring.counts[at + NUMBER] !== number) continue;
    const bins: number[] = [];
    for (let bin = 0; bin < BINS; bin++) {
      const count = ring.counts[at + FIRST_BIN + bin] ?? 0;
      if (count > 0) bins.push(bin, count);
    }
    packed.push([...ring.counts.subarray(at, at + FIRST_BIN), ring.costs[at / COLUMNS] ?? 0, ...bins]);
  }
  return packed;
}

/** Adds packed slots and ignores outdated and invalid ones. Returns the start of the oldest slot that was added. */
export function unpackRing(ring: Ring, nowMs: number, packed: readonly number[][]): number | undefined {
  const last = Math.floor(nowMs / ring.slotMs);
  let oldest: number | undefined;
  for (const slot of packed) {
    const number = slot[NUMBER] ?? 0;
    const isOutdated = !Number.isInteger(number) || number > last || number <= last - ring.slots;
    if (isOutdated || (ring.counts[slotStart(ring, number)] ?? 0) > number) continue;
    const at = openSlot(ring, number);
    for (let column = REQUESTS; column < FIRST_BIN; column++) add(ring.counts, at + column, slot[column] ?? 0);
    ring.costs[at / COLUMNS] = (ring.costs[at / COLUMNS] ?? 0) + (slot[FIRST_BIN] ?? 0);
    for (let i = FIRST_BIN + 1; i + 1 < slot.length; i += 2) {
      const bin = slot[i] ?? BINS;
      if (Number.isInteger(bin) && bin < BINS) add(ring.counts, at + FIRST_BIN + bin, slot[i + 1] ?? 0);
    }
    oldest = Math.min(oldest ?? Number.POSITIVE_INFINITY, number * ring.slotMs);
  }
  return oldest;
}

interface Sum {
  readonly counts: Float64Array;
  cost: number;
}

function createSum(): Sum {
  return { counts: new Float64Array(COLUMNS), cost: 0 };
}

function addSlot(sum: Sum, ring: Ring, number: number): void {
  const at = slotStart(ring, number);
  if (ring.counts[at + NUMBER] !== number) return;
  for (let column = REQUESTS; column < COLUMNS; column++)
    sum.counts[column] = (sum.counts[column] ?? 0) + (ring.counts[at + column] ?? 0);
  sum.cost += ring.costs[at / COLUMNS] ?? 0;
}

function numbersOf({ counts, cost }: Sum): TrafficNumbers {
  const column = (index: number): number => counts[index] ?? 0;
  return {
    requests: column(REQUESTS),
    failed: column(FAILED),
    rejected: column(REJECTED),
    mcpCalls: column(MCP_CALLS),
    tokens: column(TOKENS),
    cost,
    p50Ms: percentile(counts, 0.5),
    p95Ms: percentile(counts, 0.95),
    p99Ms: percentile(counts, 0.99),
  };
}

/** Returns the upper bound of the bin with the percentile, or 100 s if the percentile is higher. */
function percentile(counts: Float64Array, share: number): number | null {
  const wanted = (counts[REQUESTS] ?? 0) * share;
  if (wanted === 0) return null;
  let seen = 0;
  for (let bin = 0; bin < BINS; bin++) {
    seen += counts[FIRST_BIN + bin] ?? 0;
    if (seen >= wanted) return Math.round((BOUNDS_MS[Math.min(bin, BOUNDS_MS.length - 1)] ?? 0) * 10) / 10;
  }
  return 0;
}

function openSlot(ring: Ring, number: number): number {
  const at = slotStart(ring, number);
  if (ring.counts[at + NUMBER] !== number) {
    ring.counts.fill(0, at, at + COLUMNS);
    ring.counts[at + NUMBER] = number;
    ring.costs[at / COLUMNS] = 0;
  }
  return at;
}

function slotStart({ slots }: Pick<Ring, "slots">, number: number): number {
  return (number % slots) * COLUMNS;
}

function add(counts: Uint32Array, at: number, value: number): void {
  counts[at] = (counts[at] ?? 0) + value;
}

function histogramBin(durationMs: number): number {
  const bin = durationMs <= 1 ? 0 : Math.ceil(Math.log10(durationMs) * 5);
  return Math.min(bin, BOUNDS_MS.length);
}
