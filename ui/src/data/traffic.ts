/**
 * Polls the gateway's traffic history for the time range in the URL.
 */
import type { HistoryReport } from "../../../src/observe/trace/request-record.ts";
import { param } from "../frame/router.ts";
import { getJson } from "./api.ts";
import { createPoll } from "./poll.ts";

const INTERVAL_MS = 5_000;

export const RANGES = [
  { name: "", title: "5 min", seconds: 300 },
  { name: "30m", title: "30 min", seconds: 1_800 },
  { name: "3h", title: "3 h", seconds: 10_800 },
  { name: "24h", title: "24 h", seconds: 86_400 },
] as const;

export function rangeSeconds(): number {
  return RANGES.find(({ name }) => name === param("range"))?.seconds ?? RANGES[0].seconds;
}

export const traffic = createPoll(() => getJson<HistoryReport>(`debug/history?seconds=${rangeSeconds()}`), INTERVAL_MS);
