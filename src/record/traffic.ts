/**
 * Keeps traffic statistics of the last day in memory: in total, with fine slots for an hour and coarse slots for a day,
 * and by route, model, tool, key, user, and error, with coarser slots. All have the same windows.
 */
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { readJson } from "../json/read-json.ts";
import { type FinishedRequest, llmModel, type RequestValues } from "./finished-request.ts";
import type { RequestResult } from "./trace/record.ts";
import {
  DURATION_BINS,
  durationBin,
  type HistoryPoint,
  type HistoryReport,
  OTHER_NAMES,
  sumOfTraffic,
  TRAFFIC_GROUPS,
  type TrafficGroup,
  type TrafficNumbers,
  type TrafficRows,
  type TrafficSums,
} from "./trace/traffic-numbers.ts";

const HISTORY = peerInput("store/traffic-history");

/** The slots of the total and of the groups, one longer than an hour and a day. */
const TOTAL = { fine: { slotMs: 10_000, slots: 366 }, coarse: { slotMs: 300_000, slots: 300 } };
const GROUPS = { fine: { slotMs: 60_000, slots: 61 }, coarse: { slotMs: 3_600_000, slots: 25 } };
/** Longer ranges use the coarse slots. */
const FINE_SECONDS = 3_600;
export const HISTORY_SECONDS = 86_400;
/** Names come from clients. Longer ones are not counted by name. */
const MAX_NAME_CHARS = 200;
/**
 * Bounds memory, because some names come from clients: a series takes up to 30 KB with requests in every slot. A further name replaces a series without requests in the last hour; if there is none, the name is not counted.
 */
const MAX_SERIES: Readonly<Record<TrafficGroup, number>> = {
  node: 600,
  model: 100,
  tool: 200,
  key: 100,
  user: 100,
  error: 100,
};
/** Bounds what is written to the store every minute. */
const MAX_PACKED_SERIES = 40;

export interface TrafficHistory {
  count(finished: FinishedRequest): void;
  report(rangeSeconds: number): HistoryReport;
  /** Returns only the traffic whose name in this group matches. */
  reportOf(group: TrafficGroup, matches: (name: readonly string[]) => boolean, rangeSeconds: number): HistoryReport;
  rows(group: TrafficGroup, rangeSeconds: number): TrafficRows;
  packed(): string;
  /** Adds the statistics of an earlier process, and ignores outdated and invalid input. */
  unpack(text: string): void;
}

interface Series {
  readonly name: readonly string[];
  readonly fine: Ring;
  readonly coarse: Ring;
  /** When the last request ended. Undefined if it was in an earlier process. */
  lastMs?: number;
}

export function createTrafficHistory(clock: Pick<Clock, "now">): TrafficHistory {
  const total = createSeries([], TOTAL);
  const groups = new Map(TRAFFIC_GROUPS.map((group) => [group, new Map<string, Series>()]));
  const nextEvictionMs = new Map<TrafficGroup, number>();
  // Slots are based on wall-clock time, so that their numbers are the same in all threads.
  let knownSinceMs = clock.now();
  let lastNode: Series | undefined;

  const seriesOf = (group: TrafficGroup): Map<string, Series> => groups.get(group) as Map<string, Series>;

  /** Returns undefined if the name is new and may not be added, or if the group is full. */
  function open(group: TrafficGroup, name: readonly string[], nowMs: number, mayAdd = true): Series | undefined {
    const all = seriesOf(group);
    const key = name.join("\n");
    const known = all.get(key);
    if (known !== undefined) return known;
    const isFull = all.size >= MAX_SERIES[group] && name.at(-1) !== OTHER_NAMES;
    if (!mayAdd || (isFull && !evictIdle(group, nowMs))) return undefined;
    const series = createSeries(name, GROUPS);
    all.set(key, series);
    return series;
  }

  /** Looks at most once a minute, so that invented names cost little. */
  function evictIdle(group: TrafficGroup, nowMs: number): boolean {
    if (nowMs < (nextEvictionMs.get(group) ?? 0)) return false;
    nextEvictionMs.set(group, nowMs + GROUPS.fine.slotMs);
    const all = seriesOf(group);
    const before = all.size;
    for (const [key, { fine }] of all) if (requestsIn(fine, 0, nowMs).every((count) => count === 0)) all.delete(key);
    return all.size < before;
  }

  function nodeSeries({ listener, route = "", backend = "" }: RequestValues, nowMs: number) {
    const known = lastNode?.name;
    // Comparing with the previous request is cheaper than building a key.
    if (known === undefined || known[0] !== listener || known[1] !== route || known[2] !== backend)
      lastNode = open("node", [listener, route, backend], nowMs);
    return lastNode;
  }

  function reportIn(those: readonly Series[], sizes: typeof TOTAL, rangeSeconds: number): HistoryReport {
    const nowMs = clock.now();
    const span = windowOf(nowMs, knownSinceMs, rangeSeconds);
    const rings = those.map((series) => ringOf(series, rangeSeconds));
    const { windowSeconds, coveredSeconds } = span;
    const { slotMs } = ringOf(sizes, rangeSeconds);
    return {
      slotSeconds: slotMs / 1000,
      windowSeconds,
      coveredSeconds,
      points: pointsIn(rings, slotMs, span, nowMs),
      total: totalIn(rings, span.fromMs, nowMs),
    };
  }

  return {
    count({ values }) {
      const nowMs = clock.now();
      const sample = sampleOf(values);
      addToSeries(total, nowMs, sample);
      addToSeries(nodeSeries(values, nowMs), nowMs, sample);
      for (const { group, name, mayAdd } of namesOf(values)) {
        const isShort = name.every((part) => part.length <= MAX_NAME_CHARS);
        const series = isShort ? open(group, name, nowMs, mayAdd) : undefined;
        addToSeries(series ?? open(group, OTHER[group], nowMs), nowMs, sample);
      }
    },

    report: (rangeSeconds) => reportIn([total], TOTAL, rangeSeconds),

    reportOf: (group, matches, rangeSeconds) =>
      reportIn(
        [...seriesOf(group).values()].filter(({ name }) => matches(name)),
        GROUPS,
        rangeSeconds,
      ),

    rows(group, rangeSeconds) {
      const nowMs = clock.now();
      const { fromMs, windowSeconds, coveredSeconds } = windowOf(nowMs, knownSinceMs, rangeSeconds);
      const rows = [...seriesOf(group).values()].flatMap((series) => {
        const { name, lastMs } = series;
        const ring = ringOf(series, rangeSeconds);
        const numbers = totalIn([ring], fromMs, nowMs);
        const last = lastMs === undefined ? {} : { lastAt: new Date(lastMs).toISOString() };
        return numbers.requests === 0 ? [] : [{ name, ...numbers, trend: requestsIn(ring, fromMs, nowMs), ...last }];
      });
      const slotSeconds = ringOf(GROUPS, rangeSeconds).slotMs / 1000;
      return { slotSeconds, windowSeconds, coveredSeconds, rows: rows.sort((a, b) => b.requests - a.requests) };
    },

    packed() {
      const nowMs = clock.now();
      const packed = ({ fine, coarse }: Series) => [packRing(fine, nowMs), packRing(coarse, nowMs)];
      const busiest = (["node", "error"] as const).flatMap((group) =>
        [...seriesOf(group).values()]
          .map((series) => ({ series, requests: totalIn([series.coarse], 0, nowMs).requests }))
          .sort((a, b) => b.requests - a.requests)
          .slice(0, MAX_PACKED_SERIES)
          .map(({ series }) => [group, series.name, ...packed(series)]),
      );
      return JSON.stringify({ version: PACKED_VERSION, total: packed(total), groups: busiest });
    },

    unpack(text) {
      const nowMs = clock.now();
      const packed = parsePacked(text);
      const rings = [total.fine, total.coarse];
      for (const [i, slots] of (packed?.total ?? []).entries()) {
        const ring = rings[i];
        const oldest = ring && unpackRing(ring, nowMs, slots);
        if (oldest !== undefined) knownSinceMs = Math.min(knownSinceMs, oldest);
      }
      for (const [group, name, fine, coarse] of packed?.groups ?? []) {
        const series = open(group, name, nowMs);
        if (series === undefined) continue;
        unpackRing(series.fine, nowMs, fine);
        unpackRing(series.coarse, nowMs, coarse);
      }
    },
  };
}

function createSeries(name: readonly string[], { fine, coarse }: typeof TOTAL): Series {
  return { name, fine: { ...fine, kept: [] }, coarse: { ...coarse, kept: [] } };
}

function addToSeries(series: Series | undefined, nowMs: number, sample: TrafficSample): void {
  if (series === undefined) return;
  series.lastMs = nowMs;
  addSample(series.fine, nowMs, sample);
  addSample(series.coarse, nowMs, sample);
}

function ringOf<Ringlike>({ fine, coarse }: Record<"fine" | "coarse", Ringlike>, rangeSeconds: number): Ringlike {
  return rangeSeconds <= FINE_SECONDS ? fine : coarse;
}

function sampleOf({ result, durationMs, attributes }: RequestValues): TrafficSample {
  const { llm, mcp } = attributes;
  return {
    result,
    bin: durationBin(durationMs),
    isMcpCall: (mcp?.tool ?? mcp?.prompt ?? mcp?.resource) !== undefined,
    tokens: (llm?.inputTokens ?? 0) + (llm?.outputTokens ?? 0),
    cost: llm?.cost ?? 0,
  };
}

/** Names without a series of their own are counted here. Keys and users beyond the limit have this name, too. */
const OTHER: Readonly<Record<CountedName["group"], readonly string[]>> = {
  model: [OTHER_NAMES],
  tool: ["", OTHER_NAMES],
  key: [OTHER_NAMES],
  user: [OTHER_NAMES],
  error: ["", "", OTHER_NAMES],
};

interface CountedName {
  readonly group: Exclude<TrafficGroup, "node">;
  readonly name: readonly string[];
  readonly mayAdd: boolean;
}

/**
 * A model is counted if a provider was called. A rejected call of a tool adds no name, so that clients cannot fill the
 * group with invented ones.
 */
function namesOf({ route = "", attributes, failure, status, result, key, subject }: RequestValues): CountedName[] {
  const { llm, mcp } = attributes;
  const names: CountedName[] = [];
  const add = (group: CountedName["group"], name: readonly string[], mayAdd = true) =>
    names.push({ group, name, mayAdd });
  const model = llm && llmModel(llm);
  if (llm?.provider !== undefined && model !== undefined) add("model", [model]);
  if (mcp?.tool !== undefined) add("tool", [mcp.tool.target, mcp.tool.name], result !== "rejected");
  if (key !== undefined) add("key", [key]);
  if (subject !== null) add("user", [subject]);
  if (result === "failed" || result === "rejected") {
    const code = failure?.code ?? mcp?.outcome ?? (status === undefined ? "no_response" : String(status));
    add("error", [route, result, code]);
  }
  return names;
}

/** Durations are those of `TrafficSums`. */
interface Slot extends Mutable<Omit<TrafficSums, "durations">> {
  /** The time of the slot, in units of `slotMs`. */
  readonly number: number;
  readonly durations: number[];
}

type Mutable<Shape> = { -readonly [Name in keyof Shape]: Shape[Name] };

interface Ring {
  readonly slotMs: number;
  readonly slots: number;
  /** The slot with a number is at the number modulo `slots`, unless an outdated one is. */
  readonly kept: (Slot | undefined)[];
}

interface TrafficSample {
  readonly result: RequestResult;
  /** The bin of the duration (`durationBin`), which all rings share. */
  readonly bin: number;
  readonly isMcpCall: boolean;
  readonly tokens: number;
  readonly cost: number;
}

interface RingSpan {
  readonly fromMs: number;
  readonly windowSeconds: number;
  /** The part of the window in which the gateway was running. */
  readonly coveredSeconds: number;
}

function addSample(ring: Ring, nowMs: number, { result, bin, isMcpCall, tokens, cost }: TrafficSample): void {
  const slot = openSlot(ring, Math.floor(nowMs / ring.slotMs));
  slot.requests += 1;
  if (result !== "ok") slot[result] += 1;
  if (isMcpCall) slot.mcpCalls += 1;
  slot.tokens += tokens;
  slot.cost += cost;
  addDurations(slot.durations, bin, 1);
}

/** All windows begin at a slot of the groups, which have the coarsest rings, so that every ring covers the same time. */
function windowOf(nowMs: number, knownSinceMs: number, rangeSeconds: number): RingSpan {
  const { slotMs, slots } = ringOf(GROUPS, rangeSeconds);
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
function pointsIn(rings: readonly Ring[], slotMs: number, { fromMs }: RingSpan, nowMs: number): HistoryPoint[] {
  const points: HistoryPoint[] = [];
  for (let number = Math.floor(fromMs / slotMs); number * slotMs <= nowMs; number++)
    points.push({ at: number * slotMs, ...sumOfTraffic(rings.flatMap((ring) => slotAt(ring, number) ?? [])) });
  return points;
}

function totalIn(rings: readonly Ring[], fromMs: number, nowMs: number): TrafficNumbers {
  return sumOfTraffic(rings.flatMap((ring) => slotsIn(ring, fromMs, nowMs).filter((slot) => slot !== undefined)));
}

function requestsIn(ring: Ring, fromMs: number, nowMs: number): number[] {
  return slotsIn(ring, fromMs, nowMs).map((slot) => slot?.requests ?? 0);
}

/** Returns the slots of the time, oldest first. An empty slot is undefined. */
function slotsIn(ring: Ring, fromMs: number, nowMs: number): (Slot | undefined)[] {
  const last = Math.floor(nowMs / ring.slotMs);
  const first = Math.max(last - ring.slots + 1, Math.floor(fromMs / ring.slotMs));
  return Array.from({ length: last - first + 1 }, (_unused, i) => slotAt(ring, first + i));
}

/** Returns undefined if the slot is empty. */
function slotAt({ kept, slots }: Ring, number: number): Slot | undefined {
  const slot = kept[number % slots];
  return slot?.number === number ? slot : undefined;
}

function openSlot(ring: Ring, number: number): Slot {
  const known = slotAt(ring, number);
  if (known !== undefined) return known;
  const sums = { requests: 0, failed: 0, rejected: 0, aborted: 0, mcpCalls: 0, tokens: 0, cost: 0 };
  const slot: Slot = { number, ...sums, durations: [] };
  ring.kept[number % ring.slots] = slot;
  return slot;
}

function addDurations(durations: number[], bin: number, count: number): void {
  const first = durations[0] ?? bin;
  if (durations.length === 0) durations.push(bin);
  else if (bin < first) durations.splice(0, 1, bin, ...new Array<number>(first - bin).fill(0));
  const at = bin - (durations[0] as number) + 1;
  while (durations.length <= at) durations.push(0);
  durations[at] = (durations[at] as number) + count;
}

/** A packed slot has the number, these sums, and the durations. */
const PACKED = ["requests", "failed", "rejected", "aborted", "mcpCalls", "tokens", "cost"] as const;
const PACKED_LENGTH = { min: 1 + PACKED.length, max: 2 + PACKED.length + DURATION_BINS };

function packRing(ring: Ring, nowMs: number): number[][] {
  return slotsIn(ring, 0, nowMs).flatMap((slot) =>
    slot === undefined ? [] : [[slot.number, ...PACKED.map((name) => slot[name]), ...slot.durations]],
  );
}

/** Adds packed slots and ignores outdated and invalid ones. Returns the start of the oldest slot that was added. */
function unpackRing(ring: Ring, nowMs: number, packed: readonly number[][]): number | undefined {
  const last = Math.floor(nowMs / ring.slotMs);
  let oldest: number | undefined;
  for (const [number = 0, ...values] of packed) {
    const isOutdated = !Number.isInteger(number) || number > last || number <= last - ring.slots;
    if (isOutdated || (ring.kept[number % ring.slots]?.number ?? 0) > number) continue;
    const slot = openSlot(ring, number);
    for (const [i, name] of PACKED.entries()) slot[name] += values[i] ?? 0;
    const [first = 0, ...bins] = values.slice(PACKED.length);
    for (const [i, count] of bins.entries())
      if (Number.isInteger(first) && first + i < DURATION_BINS && count > 0)
        addDurations(slot.durations, first + i, count);
    oldest = Math.min(oldest ?? Number.POSITIVE_INFINITY, number * ring.slotMs);
  }
  return oldest;
}

const packedSlots = z.array(z.array(z.number().min(0)).min(PACKED_LENGTH.min).max(PACKED_LENGTH.max));
/** Increases with every change of the slots, so that those of another version are ignored. */
const PACKED_VERSION = 2;
const packedHistory = z.object({
  version: z.literal(PACKED_VERSION),
  total: z.array(packedSlots),
  groups: z.array(z.tuple([z.enum(TRAFFIC_GROUPS), z.array(z.string().max(MAX_NAME_CHARS)), packedSlots, packedSlots])),
});

function parsePacked(text: string): z.output<typeof packedHistory> | undefined {
  try {
    return packedHistory.parse(readJson(HISTORY, text));
  } catch {
    // The text may be in the format of another version.
    return undefined;
  }
}
