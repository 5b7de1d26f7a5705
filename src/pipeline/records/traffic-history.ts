/**
 * Keeps traffic statistics of the last day in memory, in two ring buffers of time slots, one with fine slots for half
 * an hour and one with coarse slots for a day.
 */
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Outcome } from "../../core/policy.ts";
import { type HistoryPoint, type HistoryReport, resultOf } from "../../observe/trace/request-record.ts";

const FINE = { slotMs: 10_000, slots: 180 };
const COARSE = { slotMs: 300_000, slots: 288 };
export const HISTORY_SECONDS = (COARSE.slotMs * COARSE.slots) / 1000;

/** These are the upper bounds of the duration histogram, with five bins per decade from 1 ms to 100 s. */
const BOUNDS_MS: readonly number[] = Array.from({ length: 26 }, (_unused, i) => 10 ** (i / 5));
const P95 = 0.95;

export interface TrafficHistory {
  count(exchange: Exchange, outcome: Outcome, durationMs: number): void;
  report(rangeSeconds: number): HistoryReport;
  packed(): string;
  /** Adds the statistics of an earlier process, and ignores outdated and invalid input. */
  unpack(text: string): void;
}

interface Slot {
  number: number;
  requests: number;
  failed: number;
  rejected: number;
  tokens: number;
  cost: number;
  readonly durations: Uint32Array;
}

export function createTrafficHistory(clock: Pick<Clock, "now">): TrafficHistory {
  const rings = [FINE, COARSE].map(({ slotMs, slots }) => ({
    slotMs,
    slots: Array.from({ length: slots }, () => emptySlot()),
  }));
  // Slots are based on wall-clock time, so that their numbers are the same in all threads.
  let knownSinceMs = clock.now();

  return {
    count({ attributes, failure }, { status = null, end }, durationMs) {
      const nowMs = clock.now();
      const bin = histogramBin(durationMs);
      const { llm, mcp } = attributes;
      const result = resultOf({ status, end, failure, mcp });
      for (const { slotMs, slots } of rings) {
        const slot = slotAt(slots, Math.floor(nowMs / slotMs));
        slot.requests += 1;
        if (result === "failed" || result === "rejected") slot[result] += 1;
        slot.durations[bin] = (slot.durations[bin] ?? 0) + 1;
        if (llm !== undefined) {
          slot.tokens += (llm.inputTokens ?? 0) + (llm.outputTokens ?? 0);
          slot.cost += llm.cost ?? 0;
        }
      }
    },

    report(rangeSeconds) {
      const isFine = rangeSeconds * 1000 <= FINE.slotMs * FINE.slots;
      const { slotMs, slots } = rings[isFine ? 0 : 1] as (typeof rings)[number];
      const nowMs = clock.now();
      const last = Math.floor(nowMs / slotMs);
      const wanted = Math.min(slots.length, Math.max(1, Math.ceil((rangeSeconds * 1000) / slotMs)));
      const first = Math.max(last - wanted + 1, Math.floor(knownSinceMs / slotMs));
      const shown: Slot[] = [];
      for (let number = first; number <= last; number++) {
        const slot = slots[number % slots.length];
        shown.push(slot?.number === number ? slot : emptySlot(number));
      }
      return {
        slotSeconds: slotMs / 1000,
        points: shown.map((slot) => ({ at: slot.number * slotMs, ...toNumbers(slot) })),
        total: toNumbers(shown.reduce(addSlot, emptySlot())),
      };
    },

    packed() {
      const nowMs = clock.now();
      return JSON.stringify(
        rings.map(({ slotMs, slots }) =>
          slots
            .filter(({ number }) => number > Math.floor(nowMs / slotMs) - slots.length && number >= 0)
            .map(packedSlot),
        ),
      );
    },

    unpack(text) {
      const nowMs = clock.now();
      for (const [i, packed] of parseRings(text).entries()) {
        const ring = rings[i];
        if (ring === undefined) return;
        const last = Math.floor(nowMs / ring.slotMs);
        for (const one of packed) {
          const [number = -1] = one;
          const place = ring.slots[number % ring.slots.length];
          if (place === undefined || number > last || number <= last - ring.slots.length || place.number > number)
            continue;
          addSlot(slotAt(ring.slots, number), unpackedSlot(one));
          knownSinceMs = Math.min(knownSinceMs, number * ring.slotMs);
        }
      }
    },
  };
}

/** Returns the numbers of the slot, followed by the index and count of each non-empty histogram bin. */
function packedSlot({ number, requests, failed, rejected, tokens, cost, durations }: Slot): number[] {
  const bins = [...durations.entries()].flatMap(([bin, count]) => (count === 0 ? [] : [bin, count]));
  return [number, requests, failed, rejected, tokens, cost, ...bins];
}

function unpackedSlot([
  number = -1,
  requests = 0,
  failed = 0,
  rejected = 0,
  tokens = 0,
  cost = 0,
  ...bins
]: number[]): Slot {
  const slot: Slot = { ...emptySlot(number), requests, failed, rejected, tokens, cost };
  for (let i = 0; i + 1 < bins.length; i += 2) {
    const bin = bins[i] ?? 0;
    if (bin < slot.durations.length) slot.durations[bin] = bins[i + 1] ?? 0;
  }
  return slot;
}

const packedRings = z.array(
  z.array(
    z
      .array(z.number().min(0))
      .min(6)
      .max(6 + 2 * (BOUNDS_MS.length + 1)),
  ),
);

function parseRings(text: string): number[][][] {
  try {
    return packedRings.parse(JSON.parse(text));
  } catch {
    // The text may be in the format of another version.
    return [];
  }
}

function slotAt(slots: Slot[], number: number): Slot {
  const slot = slots[number % slots.length] as Slot;
  if (slot.number !== number) {
    slot.number = number;
    slot.requests = slot.failed = slot.rejected = slot.tokens = slot.cost = 0;
    slot.durations.fill(0);
  }
  return slot;
}

function emptySlot(number = -1): Slot {
  const durations = new Uint32Array(BOUNDS_MS.length + 1);
  return { number, requests: 0, failed: 0, rejected: 0, tokens: 0, cost: 0, durations };
}

function addSlot(sum: Slot, slot: Slot): Slot {
  for (const name of ["requests", "failed", "rejected", "tokens", "cost"] as const) sum[name] += slot[name];
  for (let i = 0; i < sum.durations.length; i++) sum.durations[i] = (sum.durations[i] ?? 0) + (slot.durations[i] ?? 0);
  return sum;
}

function toNumbers({ requests, failed, rejected, tokens, cost, durations }: Slot): Omit<HistoryPoint, "at"> {
  return { requests, failed, rejected, tokens, cost, p95Ms: requests === 0 ? null : percentile95(durations, requests) };
}

function histogramBin(durationMs: number): number {
  const bin = durationMs <= 1 ? 0 : Math.ceil(Math.log10(durationMs) * 5);
  return Math.min(bin, BOUNDS_MS.length);
}

/** Returns the upper bound of the bin with the 95th percentile, or 100 s if the percentile is higher. */
function percentile95(durations: Uint32Array, requests: number): number {
  let seen = 0;
  for (let i = 0; i < durations.length; i++) {
    seen += durations[i] ?? 0;
    if (seen >= requests * P95) return Math.round((BOUNDS_MS[Math.min(i, BOUNDS_MS.length - 1)] ?? 0) * 10) / 10;
  }
  return 0;
}
