/**
 * Keeps traffic statistics of the last day in memory: in total, with fine slots for an hour and coarse slots for a day,
 * and by route, model, tool, key, user, and error. All have the same windows.
 */
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import { peerInput } from "../base/peer-inputs.ts";
import type { Exchange } from "../core/exchange.ts";
import type { Outcome } from "../core/policy.ts";
import { requestSubject } from "../core/principal.ts";
import { readJson } from "../json/read-json.ts";
import { resultOfRequest } from "./finished-request.ts";
import type { RequestResult } from "./trace/record.ts";
import {
  durationBin,
  type HistoryReport,
  OTHER_NAMES,
  TRAFFIC_GROUPS,
  type TrafficGroup,
  type TrafficRows,
} from "./trace/traffic-numbers.ts";
import { addToSeries, createTrafficGroups, groupSlotMs, type Series, windowOf } from "./traffic-groups.ts";
import {
  addSample,
  createRing,
  PACKED_LENGTH,
  packRing,
  pointsIn,
  type Ring,
  type TrafficSample,
  totalIn,
  unpackRing,
} from "./traffic-ring.ts";

const HISTORY = peerInput("store/traffic-history");

/** One slot of the groups longer than an hour and a day. */
const FINE = { slotMs: 10_000, slots: 366 };
const COARSE = { slotMs: 300_000, slots: 300 };
const FINE_SECONDS = 3_600;
export const HISTORY_SECONDS = 86_400;
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

  function reportIn(those: readonly Ring[], slotMs: number, rangeSeconds: number): HistoryReport {
    const nowMs = clock.now();
    const span = windowOf(nowMs, knownSinceMs, rangeSeconds);
    const { windowSeconds, coveredSeconds } = span;
    return {
      slotSeconds: slotMs / 1000,
      windowSeconds,
      coveredSeconds,
      points: pointsIn(those, slotMs, span, nowMs),
      total: totalIn(those, span, nowMs),
    };
  }

  return {
    count(exchange, outcome, durationMs) {
      const nowMs = clock.now();
      const sample = sampleOf(exchange, outcome, durationMs);
      for (const ring of rings) addSample(ring, nowMs, sample);
      addToSeries(nodeSeries(exchange, nowMs), nowMs, sample);
      for (const { group, name, mayAdd } of namesOf(exchange, outcome, sample.result)) {
        const isShort = name.every((part) => part.length <= MAX_NAME_CHARS);
        const series = isShort ? groups.open(group, name, nowMs, mayAdd) : undefined;
        addToSeries(series ?? groups.open(group, OTHER[group], nowMs), nowMs, sample);
      }
    },

    report(rangeSeconds) {
      const ring = rings[rangeSeconds <= FINE_SECONDS ? 0 : 1] as (typeof rings)[number];
      return reportIn([ring], ring.slotMs, rangeSeconds);
    },

    reportOf: (group, matches, rangeSeconds) =>
      reportIn(groups.find(group, matches, rangeSeconds), groupSlotMs(rangeSeconds), rangeSeconds),

    rows: (group, rangeSeconds) => groups.rows(group, clock.now(), knownSinceMs, rangeSeconds),

    packed() {
      const nowMs = clock.now();
      return JSON.stringify({
        version: PACKED_VERSION,
        total: rings.map((ring) => packRing(ring, nowMs)),
        groups: groups.pack(nowMs),
      });
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

function sampleOf(
  exchange: Exchange,
  outcome: Outcome,
  durationMs: number,
): TrafficSample & { readonly result: RequestResult } {
  const { llm, mcp } = exchange.attributes;
  return {
    result: resultOfRequest(exchange, outcome),
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
function namesOf(
  { route = "", attributes, failure }: Exchange,
  { status }: Outcome,
  result: RequestResult,
): CountedName[] {
  const { llm, mcp, apiKey } = attributes;
  const names: CountedName[] = [];
  const add = (group: CountedName["group"], name: readonly string[], mayAdd = true) =>
    names.push({ group, name, mayAdd });
  const model = llm?.responseModel ?? llm?.requestModel;
  if (llm?.provider !== undefined && model !== undefined) add("model", [model]);
  if (mcp?.tool !== undefined) add("tool", [mcp.tool.target, mcp.tool.name], result !== "rejected");
  const key = apiKey?.name ?? apiKey?.user_id;
  if (typeof key === "string") add("key", [key]);
  const user = requestSubject(attributes);
  if (user !== null) add("user", [user]);
  if (result === "failed" || result === "rejected") {
    const code = failure?.code ?? mcp?.outcome ?? (status === undefined ? "no_response" : String(status));
    add("error", [route, result, code]);
  }
  return names;
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
