/**
 * Keeps traffic statistics of the last day by route, model, tool, key, user, and error, with coarser slots than the
 * total.
 */
import { OTHER_NAMES, type TrafficGroup, type TrafficRows } from "./trace/traffic-numbers.ts";
import {
  addSample,
  createRing,
  packRing,
  type Ring,
  type RingSpan,
  requestsIn,
  spanOf,
  type TrafficSample,
  totalIn,
  unpackRing,
} from "./traffic-ring.ts";

const FINE = { slotMs: 60_000, slots: 61 };
const COARSE = { slotMs: 3_600_000, slots: 25 };
/** Longer ranges are counted in hours. */
const FINE_SECONDS = 3_600;
/**
 * Bounds memory, because some names come from clients: a series takes 4 KB, and up to 30 KB with requests in every
 * slot. A further name replaces a series without requests in the last hour; if there is none, the name is not counted.
 */
export const MAX_SERIES: Readonly<Record<TrafficGroup, number>> = {
  node: 600,
  model: 100,
  tool: 200,
  key: 100,
  user: 100,
  error: 100,
};
/** Bounds what is written to the store every minute. */
const MAX_PACKED_SERIES = 40;

export type PackedSeries = readonly [group: TrafficGroup, name: string[], fine: number[][], coarse: number[][]];

export interface Series {
  readonly name: readonly string[];
  readonly fine: Ring;
  readonly coarse: Ring;
  /** When the last request ended. Undefined if it was in an earlier process. */
  lastMs?: number;
}

export interface TrafficGroups {
  /** Returns undefined if the name is new and may not be added, or if the group is full. */
  open(group: TrafficGroup, name: readonly string[], nowMs: number, mayAdd?: boolean): Series | undefined;
  find(group: TrafficGroup, matches: (name: readonly string[]) => boolean, rangeSeconds: number): Ring[];
  rows(group: TrafficGroup, nowMs: number, knownSinceMs: number, rangeSeconds: number): TrafficRows;
  pack(nowMs: number): PackedSeries[];
  unpack(packed: PackedSeries, nowMs: number): void;
}

export function groupSlotMs(rangeSeconds: number): number {
  return (isFine(rangeSeconds) ? FINE : COARSE).slotMs;
}

/** The window of a range, which begins with a slot of the groups. */
export function windowOf(nowMs: number, knownSinceMs: number, rangeSeconds: number): RingSpan {
  return spanOf(isFine(rangeSeconds) ? FINE : COARSE, nowMs, knownSinceMs, rangeSeconds);
}

export function createTrafficGroups(): TrafficGroups {
  const groups: Readonly<Record<TrafficGroup, Map<string, Series>>> = {
    node: new Map(),
    model: new Map(),
    tool: new Map(),
    key: new Map(),
    user: new Map(),
    error: new Map(),
  };

  const nextEvictionMs = new Map<TrafficGroup, number>();

  function open(group: TrafficGroup, name: readonly string[], nowMs: number, mayAdd = true): Series | undefined {
    const key = name.join("\n");
    const known = groups[group].get(key);
    if (known !== undefined) return known;
    const isFull = groups[group].size >= MAX_SERIES[group] && name.at(-1) !== OTHER_NAMES;
    if (!mayAdd || (isFull && !evictIdle(group, nowMs))) return undefined;
    const series: Series = { name, fine: createRing(FINE), coarse: createRing(COARSE) };
    groups[group].set(key, series);
    return series;
  }

  /** Looks at most once a minute, so that invented names cost little. */
  function evictIdle(group: TrafficGroup, nowMs: number): boolean {
    if (nowMs < (nextEvictionMs.get(group) ?? 0)) return false;
    nextEvictionMs.set(group, nowMs + FINE.slotMs);
    const before = groups[group].size;
    for (const [key, { fine }] of groups[group])
      if (requestsIn(fine, { fromMs: 0 }, nowMs).every((requests) => requests === 0)) groups[group].delete(key);
    return groups[group].size < before;
  }

  return {
    open,

    find: (group, matches, rangeSeconds) =>
      [...groups[group].values()]
        .filter(({ name }) => matches(name))
        .map(({ fine, coarse }) => (isFine(rangeSeconds) ? fine : coarse)),

    rows(group, nowMs, knownSinceMs, rangeSeconds) {
      const span = windowOf(nowMs, knownSinceMs, rangeSeconds);
      const rows = [...groups[group].values()].flatMap(({ name, fine, coarse, lastMs }) => {
        const ring = isFine(rangeSeconds) ? fine : coarse;
        const total = totalIn([ring], span, nowMs);
        const last = lastMs === undefined ? {} : { lastAt: new Date(lastMs).toISOString() };
        return total.requests === 0 ? [] : [{ name, ...total, trend: requestsIn(ring, span, nowMs), ...last }];
      });
      const { windowSeconds, coveredSeconds } = span;
      const slotSeconds = groupSlotMs(rangeSeconds) / 1000;
      return { slotSeconds, windowSeconds, coveredSeconds, rows: rows.sort((a, b) => b.requests - a.requests) };
    },

    pack(nowMs) {
      return (["node", "error"] as const).flatMap((group) =>
        [...groups[group].values()]
          .map((series) => ({ ...series, requests: totalIn([series.coarse], { fromMs: 0 }, nowMs).requests }))
          .sort((a, b) => b.requests - a.requests)
          .slice(0, MAX_PACKED_SERIES)
          .map(
            ({ name, fine, coarse }): PackedSeries => [
              group,
              [...name],
              packRing(fine, nowMs),
              packRing(coarse, nowMs),
            ],
          ),
      );
    },

    unpack([group, name, fine, coarse], nowMs) {
      const series = open(group, name, nowMs);
      if (series === undefined) return;
      unpackRing(series.fine, nowMs, fine);
      unpackRing(series.coarse, nowMs, coarse);
    },
  };
}

export function addToSeries(series: Series | undefined, nowMs: number, sample: TrafficSample): void {
  if (series === undefined) return;
  series.lastMs = nowMs;
  addSample(series.fine, nowMs, sample);
  addSample(series.coarse, nowMs, sample);
}

function isFine(rangeSeconds: number): boolean {
  return rangeSeconds <= FINE_SECONDS;
}
