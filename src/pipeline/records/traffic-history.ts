/**
 * Keeps traffic statistics of the last day in memory: in total, with fine slots for an hour and coarse slots for a day,
 * and by route, model, tool, key, and error.
 */
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Outcome } from "../../core/policy.ts";
import { readJson } from "../../json/read-json.ts";
import {
  type HistoryReport,
  type RequestResult,
  TRAFFIC_GROUPS,
  type TrafficGroup,
  type TrafficRows,
} from "../../observe/trace/request-record.ts";
import { resultOfRequest } from "./finished-request.ts";
import { addToSeries, createTrafficGroups, groupSpan, type Series } from "./traffic-groups.ts";
import {
  addSample,
  createRing,
  PACKED_LENGTH,
  packRing,
  pointsIn,
  type Ring,
  type RingSpan,
  spanOf,
  type TrafficSample,
  totalIn,
  unpackRing,
} from "./traffic-ring.ts";

const HISTORY = peerInput("store/traffic-history");

const FINE = { slotMs: 10_000, slots: 360 };
const COARSE = { slotMs: 300_000, slots: 288 };
export const HISTORY_SECONDS = (COARSE.slotMs * COARSE.slots) / 1000;
/** Names come from clients. Longer ones are not counted by name. */
const MAX_NAME_CHARS = 200;

export interface TrafficHistory {
  count(exchange: Exchange, outcome: Outcome, durationMs: number): void;
  report(rangeSeconds: number): HistoryReport;
  /** Returns only the traffic whose name in this group matches. */
  reportOf(group: TrafficGroup, matches: (name: readonly string[]) => boolean, rangeSeconds: number): HistoryReport;
  rows(group: TrafficGroup, rangeSeconds: number): TrafficRows;
  packed(): string;
  /** Adds the statistics of an earlier process, and ignores outdated and invalid input. */
  unpack(text: string): void;
}

export function createTrafficHistory(clock: Pick<Clock, "now">): TrafficHistory {
  const rings = [FINE, COARSE].map(createRing);
  const groups = createTrafficGroups();
  // Slots are based on wall-clock time, so that their numbers are the same in all threads.
  let knownSinceMs = clock.now();
  let lastNode: Series | undefined;

  function nodeSeries({ listener, route = "", attributes }: Exchange, nowMs: number): Series | undefined {
    const backend = attributes.backend?.name ?? "";
    const known = lastNode?.name;
    // Comparing with the previous request is cheaper than building a key.
    if (known === undefined || known[0] !== listener || known[1] !== route || known[2] !== backend)
      lastNode = groups.open("node", [listener, route, backend], nowMs);
    return lastNode;
  }

  return {
    count(exchange, outcome, durationMs) {
      const nowMs = clock.now();
      const sample = sampleOf(exchange, outcome, durationMs);
      for (const ring of rings) addSample(ring, nowMs, sample);
      addToSeries(nodeSeries(exchange, nowMs), nowMs, sample);
      for (const [group, name] of namesOf(exchange, outcome, sample.result))
        if (name.every((part) => part.length <= MAX_NAME_CHARS))
          addToSeries(groups.open(group, name, nowMs), nowMs, sample);
    },

    report(rangeSeconds) {
      const ring = rings[rangeSeconds * 1000 <= FINE.slotMs * FINE.slots ? 0 : 1] as (typeof rings)[number];
      const span = spanOf(ring, clock.now(), knownSinceMs, rangeSeconds);
      return reportIn([ring], span);
    },

    reportOf: (group, matches, rangeSeconds) =>
      reportIn(groups.find(group, matches, rangeSeconds), groupSpan(clock.now(), knownSinceMs, rangeSeconds)),

    rows: (group, rangeSeconds) => groups.rows(group, clock.now(), knownSinceMs, rangeSeconds),

    packed() {
      const nowMs = clock.now();
      return JSON.stringify({ total: rings.map((ring) => packRing(ring, nowMs)), groups: groups.pack(nowMs) });
    },

    unpack(text) {
      const nowMs = clock.now();
      const packed = parsePacked(text);
      for (const [i, slots] of (packed?.total ?? []).entries()) {
        const ring = rings[i];
        const oldest = ring && unpackRing(ring, nowMs, slots);
        if (oldest !== undefined) knownSinceMs = Math.min(knownSinceMs, oldest);
      }
      for (const series of packed?.groups ?? []) groups.unpack(series, nowMs);
    },
  };
}

function reportIn(rings: readonly Ring[], span: RingSpan): HistoryReport {
  const { slotSeconds, coveredSeconds } = span;
  return { slotSeconds, coveredSeconds, points: pointsIn(rings, span), total: totalIn(rings, span) };
}

function sampleOf(
  exchange: Exchange,
  outcome: Outcome,
  durationMs: number,
): TrafficSample & { readonly result: RequestResult } {
  const { llm, mcp } = exchange.attributes;
  return {
    result: resultOfRequest(exchange, outcome),
    durationMs,
    isMcpCall: (mcp?.tool ?? mcp?.prompt ?? mcp?.resource) !== undefined,
    tokens: (llm?.inputTokens ?? 0) + (llm?.outputTokens ?? 0),
    cost: llm?.cost ?? 0,
  };
}

/**
 * A model is counted if a provider was called, and a tool or key if its request was not rejected, so that clients
 * cannot fill the groups with invented names.
 */
function namesOf(
  { route = "", attributes, failure }: Exchange,
  { status }: Outcome,
  result: RequestResult,
): (readonly [TrafficGroup, readonly string[]])[] {
  const { llm, mcp, apiKey } = attributes;
  const names: (readonly [TrafficGroup, readonly string[]])[] = [];
  const model = llm?.responseModel ?? llm?.requestModel;
  if (llm?.provider !== undefined && model !== undefined) names.push(["model", [model]]);
  if (mcp?.tool !== undefined && result !== "rejected") names.push(["tool", [mcp.tool.target, mcp.tool.name]]);
  const key = apiKey?.name ?? apiKey?.user_id;
  if (typeof key === "string" && result !== "rejected") names.push(["key", [key]]);
  if (result === "failed" || result === "rejected") {
    const code = failure?.code ?? mcp?.outcome ?? (status === undefined ? "no_response" : String(status));
    names.push(["error", [route, result, code]]);
  }
  return names;
}

const packedSlots = z.array(z.array(z.number().min(0)).min(PACKED_LENGTH.min).max(PACKED_LENGTH.max));
const packedHistory = z.object({
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
