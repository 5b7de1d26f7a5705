/**
 * Defines the numbers of the traffic in a window of time, and the usage by hour. The web UI, gwctl, and the admin
 * interface take counts, rates, shares, and percentiles from here.
 */

export interface TrafficSums {
  readonly requests: number;
  /** `failed`, `rejected`, and `aborted` count the results of `resultOf`. */
  readonly failed: number;
  readonly rejected: number;
  readonly aborted: number;
  /** Calls of MCP tools, prompts, and resources. */
  readonly mcpCalls: number;
  readonly tokens: number;
  readonly cost: number;
  /** The number of a bin of durations, then the requests in this bin and in the following ones. Empty without requests. */
  readonly durations: readonly number[];
}

export interface TrafficNumbers extends TrafficSums {
  /** Percentiles of the duration, within 5%. They are null if there were no requests. */
  readonly p50Ms: number | null;
  readonly p95Ms: number | null;
  readonly p99Ms: number | null;
}

export interface HistoryPoint extends TrafficNumbers {
  /** The slot starts at this time, in milliseconds since the epoch. */
  readonly at: number;
}

export interface TrafficWindow {
  readonly slotSeconds: number;
  /** From the start of the first slot until now: at least what was asked for. Rates are per second of this. */
  readonly windowSeconds: number;
  /** The part of the window in which the gateway was running. */
  readonly coveredSeconds: number;
}

export interface HistoryReport extends TrafficWindow {
  /** All slots of the window, oldest first. */
  readonly points: readonly HistoryPoint[];
  readonly total: TrafficNumbers;
}

export const TRAFFIC_GROUPS = ["node", "model", "tool", "key", "user", "error"] as const;
export type TrafficGroup = (typeof TRAFFIC_GROUPS)[number];

/** Counts the calls whose name is not counted by itself, for example of a tool that was never called successfully. */
export const OTHER_NAMES = "(other)";

export interface TrafficRow extends TrafficNumbers {
  /**
   * The parts of the name: listener, route, and backend of a `node`; server and name of a `tool`; route, result, and
   * code of an `error`.
   */
  readonly name: readonly string[];
  /** Requests by slot, oldest first. */
  readonly trend: readonly number[];
  /** When the last request ended, in RFC 3339 format, if it was in this process. */
  readonly lastAt?: string;
}

export interface TrafficRows extends TrafficWindow {
  readonly rows: readonly TrafficRow[];
}

/** A bin is at most 10.1% wide, so that its middle is within 5% of every duration in it. */
const BINS_PER_DECADE = 24;
const SHORTEST_MS = 0.1;
const DECADES = 7;
/** The first bin has the shortest durations, and the last one has those above 1,000 s. */
export const DURATION_BINS = DECADES * BINS_PER_DECADE + 2;

export function durationBin(durationMs: number): number {
  if (!(durationMs > SHORTEST_MS)) return 0;
  return Math.min(DURATION_BINS - 1, Math.ceil(Math.log10(durationMs / SHORTEST_MS) * BINS_PER_DECADE));
}

function middleOfBin(bin: number): number {
  if (bin === 0) return SHORTEST_MS;
  // The mean of both bounds has the same relative distance to each.
  const lower = SHORTEST_MS * 10 ** ((bin - 1) / BINS_PER_DECADE);
  const upper = lower * 10 ** (1 / BINS_PER_DECADE);
  return (2 * lower * upper) / (lower + upper);
}

function percentile(durations: readonly number[], requests: number, share: number): number | null {
  const [first = 0, ...counts] = durations;
  let seen = 0;
  for (const [i, count] of counts.entries()) {
    seen += count;
    if (count > 0 && seen >= requests * share) return Math.round(middleOfBin(first + i) * 1000) / 1000;
  }
  return null;
}

export function sumOfTraffic(parts: readonly TrafficSums[]): TrafficNumbers {
  const sum = { requests: 0, failed: 0, rejected: 0, aborted: 0, mcpCalls: 0, tokens: 0, cost: 0 };
  let first = DURATION_BINS;
  let last = -1;
  for (const part of parts) {
    for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += part[name];
    if (part.durations.length < 2) continue;
    first = Math.min(first, part.durations[0] as number);
    last = Math.max(last, (part.durations[0] as number) + part.durations.length - 2);
  }
  const durations = last < 0 ? [] : [first, ...new Array<number>(last - first + 1).fill(0)];
  for (const {
    durations: [start = 0, ...counts],
  } of parts)
    for (const [i, count] of counts.entries())
      durations[start + i - first + 1] = (durations[start + i - first + 1] ?? 0) + count;
  return {
    ...sum,
    p50Ms: percentile(durations, sum.requests, 0.5),
    p95Ms: percentile(durations, sum.requests, 0.95),
    p99Ms: percentile(durations, sum.requests, 0.99),
    durations,
  };
}

export const NO_TRAFFIC = sumOfTraffic([]);

export function perSecond({ requests }: { readonly requests: number }, windowSeconds: number): number {
  return windowSeconds > 0 ? requests / windowSeconds : 0;
}

/** Returns a fraction of the requests, from 0 to 1. */
export function shareOf(result: "failed" | "rejected" | "aborted", numbers: TrafficCounts): number {
  return numbers.requests === 0 ? 0 : (numbers[result] ?? 0) / numbers.requests;
}

type TrafficCounts = { readonly requests: number } & Partial<Pick<TrafficNumbers, "failed" | "rejected" | "aborted">>;

export const USAGE_DIMENSIONS = ["team", "key", "user", "route", "model", "provider", "server", "tool"] as const;
export type UsageDimension = (typeof USAGE_DIMENSIONS)[number];
export const USAGE_GROUPS = [...USAGE_DIMENSIONS, "hour", "day"] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

export interface UsageSums {
  readonly requests: number;
  readonly ok: number;
  readonly rejected: number;
  readonly failed: number;
  readonly aborted: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedTokens: number;
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
  /** The cost is in US dollars. */
  readonly cost: number;
  /** Contains the sum of all durations. */
  readonly durationMs: number;
  readonly responseBytes: number;
  /** The arrival of the last request, in RFC 3339 format. Null if there was none, or if its version stored only the hour. */
  readonly lastAt: string | null;
}

export interface UsageReport {
  readonly since: string;
  readonly until: string;
  readonly by: readonly UsageGroup[];
  /** Each row has the values of `by`. Hours and days are RFC 3339 times. */
  readonly rows: readonly (UsageSums & Partial<Record<UsageGroup, string>>)[];
  readonly total: UsageSums;
  /** Contains the offset of the next page, or null on the last page. */
  readonly next: number | null;
}
