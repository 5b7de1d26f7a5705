/**
 * Reads traffic over time for the range in the URL: from the gateway's memory for up to a day, and from the history
 * database for longer ranges.
 */
import { computed } from "@preact/signals";
import { PROBLEM_SECONDS } from "../../../src/cli/views/problems.ts";
import {
  type HistoryPoint,
  type HistoryReport,
  NO_TRAFFIC,
  type TrafficRows,
} from "../../../src/record/trace/traffic-numbers.ts";
import { param } from "../frame/router.ts";
import { getJson } from "./api.ts";
import { dump } from "./dump.ts";
import { createPoll, type Polled } from "./poll.ts";
import { readUsage, type UsageRow } from "./usage.ts";

const INTERVAL_MS = 5_000;
const LONG_INTERVAL_MS = 30_000;
const DAY_SECONDS = 86_400;
/** A gateway that started a few minutes after the beginning of the range covers it. */
const MOSTLY = 0.95;

const ALL_RANGES = [
  { name: "", title: "15 min", seconds: 900 },
  { name: "1h", title: "1 h", seconds: 3_600 },
  { name: "24h", title: "24 h", seconds: DAY_SECONDS },
  { name: "7d", title: "7 d", seconds: 7 * DAY_SECONDS },
  { name: "30d", title: "30 d", seconds: 30 * DAY_SECONDS },
] as const;

/** True if `config.history` is set. Viewers see neither the setting nor the database. */
export const hasHistory = computed(() => dump.value.value?.config.history !== undefined);

export function ranges(): readonly { readonly name: string; readonly title: string }[] {
  return ALL_RANGES.filter(({ seconds }) => seconds <= DAY_SECONDS || hasHistory.value);
}

export function range(): (typeof ALL_RANGES)[number] {
  const found = ALL_RANGES.find(({ name }) => name === param("range")) ?? ALL_RANGES[0];
  return found.seconds > DAY_SECONDS && !hasHistory.value ? ALL_RANGES[2] : found;
}

/** The gateway's memory covers a day. */
export function memorySeconds(): number {
  return Math.min(range().seconds, DAY_SECONDS);
}

/** The name of a route, model, tool (`server/name`), key, user, or team. The empty scope is all traffic. */
export type Scope = Partial<
  Readonly<Record<"listener" | "route" | "backend" | "model" | "tool" | "key" | "user" | "team", string>>
>;

export interface TrafficPoint extends HistoryPoint {
  /** The history database has no percentiles, only the mean. */
  readonly meanMs?: number | null;
}

export interface Traffic extends HistoryReport {
  readonly points: readonly TrafficPoint[];
  readonly source: "memory" | "database";
}

const polls = new Map<string, Polled<Traffic>>();

/** Returns the poll of a scope in the selected range. Charts of the same scope share it. */
export function trafficOf(scope: Scope = {}): Polled<Traffic> {
  const { seconds } = range();
  const key = JSON.stringify([seconds, hasHistory.value, scope]);
  const known = polls.get(key);
  if (known) return known;
  const poll = createPoll(() => readTraffic(scope, seconds), seconds > DAY_SECONDS ? LONG_INTERVAL_MS : INTERVAL_MS);
  polls.set(key, poll);
  return poll;
}

async function readTraffic(scope: Scope, seconds: number): Promise<Traffic> {
  const isStored = hasHistory.peek() && scope.listener === undefined && scope.backend === undefined;
  if (seconds > DAY_SECONDS || scope.user !== undefined || scope.team !== undefined)
    return isStored ? storedTraffic(scope, seconds) : noTraffic(seconds);
  const query = new URLSearchParams({ seconds: String(seconds), ...scope });
  const report = await getJson<HistoryReport>(`debug/history?${query}`);
  // After a restart, the database reaches further back than the memory.
  if (isStored && seconds === DAY_SECONDS && report.coveredSeconds < seconds * MOSTLY)
    return storedTraffic(scope, seconds);
  return { ...report, source: "memory" };
}

function noTraffic(seconds: number): Traffic {
  return {
    slotSeconds: 3_600,
    windowSeconds: seconds,
    coveredSeconds: seconds,
    points: [],
    total: NO_TRAFFIC,
    source: "memory",
  };
}

async function storedTraffic(scope: Scope, seconds: number): Promise<Traffic> {
  const unit = seconds <= 7 * DAY_SECONDS ? ("hour" as const) : ("day" as const);
  const slotSeconds = unit === "hour" ? 3_600 : DAY_SECONDS;
  const { tool, ...rest } = scope;
  const slash = tool?.indexOf("/") ?? 0;
  const filter = tool === undefined ? rest : { ...rest, server: tool.slice(0, slash), tool: tool.slice(slash + 1) };
  const since = `${seconds}s`;
  const [times, calls] = await Promise.all([
    readUsage([unit], { since, ...filter }),
    readUsage([unit, "tool"], { since, ...filter }),
  ]);
  const byTime = new Map(times.rows.map((row) => [Date.parse(row[unit] ?? ""), row]));
  const callsAt = new Map<number, number>();
  for (const row of calls.rows) {
    const at = Date.parse(row[unit] ?? "");
    if (row.tool !== "") callsAt.set(at, (callsAt.get(at) ?? 0) + row.requests);
  }
  const slotMs = slotSeconds * 1000;
  const last = Math.floor((Date.now() + 1) / slotMs) * slotMs;
  const points: TrafficPoint[] = [];
  for (let at = last - seconds * 1000 + slotMs; at <= last; at += slotMs)
    points.push({ at, ...numbersOf(byTime.get(at)), mcpCalls: callsAt.get(at) ?? 0 });
  const mcpCalls = [...callsAt.values()].reduce((sum, count) => sum + count, 0);
  return {
    slotSeconds,
    windowSeconds: seconds,
    coveredSeconds: seconds,
    points,
    total: { ...numbersOf(times.total), mcpCalls },
    source: "database",
  };
}

function numbersOf(row: UsageRow | undefined): Omit<TrafficPoint, "at"> {
  if (!row) return { ...NO_TRAFFIC, meanMs: null };
  const { requests, failed, rejected, aborted, inputTokens, outputTokens, cost, durationMs } = row;
  return {
    ...NO_TRAFFIC,
    requests,
    failed,
    rejected,
    aborted,
    tokens: inputTokens + outputTokens,
    cost,
    meanMs: requests === 0 ? null : durationMs / requests,
  };
}

/** Lists failed and rejected requests by route and error. */
export const errors = createPoll(
  () => getJson<TrafficRows>(`debug/history?by=error&seconds=${PROBLEM_SECONDS}`),
  INTERVAL_MS,
);
