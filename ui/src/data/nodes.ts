/**
 * Polls the traffic of listeners, routes, and backends, and of the lines between them, for the selected range.
 */
import { computed } from "@preact/signals";
import {
  perSecond,
  shareOf,
  sumOfTraffic,
  type TrafficRow,
  type TrafficRows,
} from "../../../src/record/trace/traffic-numbers.ts";
import { getJson } from "./api.ts";
import { createPoll } from "./poll.ts";
import { memorySeconds, range } from "./traffic.ts";
import { readUsage } from "./usage.ts";

const INTERVAL_MS = 5_000;

export interface NodeTraffic {
  readonly requests: number;
  readonly perSecond: number;
  /** Shares are fractions of the requests, from 0 to 1. */
  readonly errorShare: number;
  readonly rejectedShare: number;
  readonly p95Ms: number | null;
  /** Requests by time, oldest first. Empty for ranges longer than a day. */
  readonly trend: readonly number[];
}

const NO_TRAFFIC: NodeTraffic = {
  requests: 0,
  perSecond: 0,
  errorShare: 0,
  rejectedShare: 0,
  p95Ms: null,
  trend: [],
};

export const keyOf = {
  listener: (name: string): string => `l\n${name}`,
  route: (name: string): string => `r\n${name}`,
  backend: (name: string): string => `b\n${name}`,
  intoRoute: (listener: string, route: string): string => `lr\n${listener}\n${route}`,
  intoBackend: (route: string, backend: string): string => `rb\n${route}\n${backend}`,
};

export const nodes = createPoll(async () => {
  const { seconds } = range();
  return seconds > memorySeconds() ? storedRoutes(seconds) : nodesInMemory(seconds);
}, INTERVAL_MS);

export function trafficOfNode(key: string): NodeTraffic {
  return nodes.value.value?.get(key) ?? NO_TRAFFIC;
}

/** Changes only if a route starts or stops failing, so that nodes rarely move. */
export const failingRoutes = computed(() =>
  [...(nodes.value.value ?? [])]
    .filter(([key, { errorShare }]) => key.startsWith("r\n") && errorShare > 0)
    .map(([key]) => key)
    .sort()
    .join(),
);

async function nodesInMemory(seconds: number): Promise<ReadonlyMap<string, NodeTraffic>> {
  const { rows, windowSeconds } = await getJson<TrafficRows>(`debug/history?by=node&seconds=${seconds}`);
  const parts = new Map<string, TrafficRow[]>();
  for (const row of rows) {
    const [listener = "", route = "", backend = ""] = row.name;
    const keys = [keyOf.listener(listener)];
    if (route !== "") keys.push(keyOf.route(route), keyOf.intoRoute(listener, route));
    if (backend !== "") keys.push(keyOf.backend(backend), keyOf.intoBackend(route, backend));
    for (const key of keys) parts.set(key, [...(parts.get(key) ?? []), row]);
  }
  return new Map(
    [...parts].map(([key, those]) => [key, trafficOf(sumOfTraffic(those), windowSeconds, sumOfTrends(those))]),
  );
}

/** The history database counts by route, not by listener and backend. */
async function storedRoutes(seconds: number): Promise<ReadonlyMap<string, NodeTraffic>> {
  const { rows } = await readUsage(["route"], { since: `${seconds}s` });
  return new Map(rows.map((row) => [keyOf.route(row.route ?? ""), trafficOf({ ...row, p95Ms: null }, seconds, [])]));
}

function sumOfTrends(rows: readonly TrafficRow[]): number[] {
  return (rows[0]?.trend ?? []).map((_unused, i) => rows.reduce((sum, { trend }) => sum + (trend[i] ?? 0), 0));
}

function trafficOf(
  numbers: Pick<TrafficRow, "requests" | "failed" | "rejected" | "p95Ms">,
  windowSeconds: number,
  trend: readonly number[],
): NodeTraffic {
  return {
    requests: numbers.requests,
    perSecond: perSecond(numbers, windowSeconds),
    errorShare: shareOf("failed", numbers),
    rejectedShare: shareOf("rejected", numbers),
    p95Ms: numbers.p95Ms,
    trend,
  };
}
