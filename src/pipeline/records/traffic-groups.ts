/**
 * Keeps traffic statistics of the last day by route, model, tool, key, and error, with coarser slots than the total.
 */
import type { TrafficGroup, TrafficRows } from "../../observe/trace/request-record.ts";
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

const FINE = { slotMs: 60_000, slots: 60 };
const COARSE = { slotMs: 3_600_000, slots: 24 };
/**
 * Bounds memory, because some names come from clients: a series takes about 12 KB. A further name replaces a series
 * without requests in the last hour; if there is none, the name is not counted.
 */
export const MAX_SERIES: Readonly<Record<TrafficGroup, number>> = {
  node: 600,
  model: 100,
  tool: 200,
  key: 100,
  error: 100,
};
/** Bounds what is written to the store every minute. */
const MAX_PACKED_SERIES = 50;

export type PackedSeries = readonly [group: TrafficGroup, name: string[], fine: number[][], coarse: number[][]];

export interface Series {
  readonly name: readonly string[];
  readonly fine: Ring;
  readonly coarse: Ring;
}

export interface TrafficGroups {
  /** Returns undefined if the group is full. */
  open(group: TrafficGroup, name: readonly string[], nowMs: number): Series | undefined;
  find(group: TrafficGroup, matches: (name: readonly string[]) => boolean, rangeSeconds: number): Ring[];
  rows(group: TrafficGroup, nowMs: number, knownSinceMs: number, rangeSeconds: number): TrafficRows;
  pack(nowMs: number): PackedSeries[];
  unpack(packed: PackedSeries, nowMs: number): void;
}

export function groupSpan(nowMs: number, knownSinceMs: number, rangeSeconds: number): RingSpan {
  return spanOf(isFine(rangeSeconds) ? FINE : COARSE, nowMs, knownSinceMs, rangeSeconds);
}

export function createTrafficGroups(): TrafficGroups {
  const groups: Readonly<Record<TrafficGroup, Map<string, Series>>> = {
    node: new Map(),
    model: new Map(),
    tool: new Map(),
    key: new Map(),
    error: new Map(),
  };

  const nextEvictionMs = new Map<TrafficGroup, number>();

  function open(group: TrafficGroup, name: readonly string[], nowMs: number): Series | undefined {
    const key = name.join("\n");
    const known = groups[group].get(key);
    if (known !== undefined) return known;
    if (groups[group].size >= MAX_SERIES[group] && !evictIdle(group, nowMs)) return undefined;
    const series = { name, fine: createRing(FINE), coarse: createRing(COARSE) };
    groups[group].set(key, series);
    return series;
  }

  /** Looks at most once a minute, so that invented names cost little. */
  function evictIdle(group: TrafficGroup, nowMs: number): boolean {
    if (nowMs < (nextEvictionMs.get(group) ?? 0)) return false;
    nextEvictionMs.set(group, nowMs + FINE.slotMs);
    const hour = groupSpan(nowMs, 0, (FINE.slotMs * FINE.slots) / 1000);
    const before = groups[group].size;
    for (const [key, { fine }] of groups[group]) if (totalIn([fine], hour).requests === 0) groups[group].delete(key);
    return groups[group].size < before;
  }

  return {
    open,

    find: (group, matches, rangeSeconds) =>
      [...groups[group].values()]
        .filter(({ name }) => matches(name))
        .map(({ fine, coarse }) => (isFine(rangeSeconds) ? fine : coarse)),

    rows(group, nowMs, knownSinceMs, rangeSeconds) {
      const span = groupSpan(nowMs, knownSinceMs, rangeSeconds);
      const rows = [...groups[group].values()].flatMap(({ name, fine, coarse }) => {
        const ring = isFine(rangeSeconds) ? fine : coarse;
        const total = totalIn([ring], span);
        return total.requests === 0 ? [] : [{ name, ...total, trend: requestsIn(ring, span) }];
      });
      const { slotSeconds, coveredSeconds } = span;
      return { slotSeconds, coveredSeconds, rows: rows.sort((a, b) => b.requests - a.requests) };
    },

    pack(nowMs) {
      const day = groupSpan(nowMs, 0, (COARSE.slotMs * COARSE.slots) / 1000);
      return (["node", "error"] as const).flatMap((group) =>
        [...groups[group].values()]
          .map((series) => ({ ...series, requests: totalIn([series.coarse], day).requests }))
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
  addSample(series.fine, nowMs, sample);
  addSample(series.coarse, nowMs, sample);
}

function isFine(rangeSeconds: number): boolean {
  return rangeSeconds * 1000 <= FINE.slotMs * FINE.slots;
}
