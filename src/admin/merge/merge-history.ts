/**
 * The traffic of several threads as one: slots of the same time are added. Of the 95th percentiles the largest is taken,
 * because that of all requests together is never above it.
 */
import type { HistoryPoint, HistoryReport } from "../../observe/trace/traffic-report.ts";

type Numbers = Omit<HistoryPoint, "at">;

export function mergeHistories(reports: readonly HistoryReport[]): HistoryReport {
  const points = new Map<number, HistoryPoint>();
  for (const report of reports)
    for (const point of report.points) {
      const known = points.get(point.at);
      points.set(point.at, known ? { at: point.at, ...added(known, point) } : point);
    }
  const none: Numbers = { requests: 0, failed: 0, rejected: 0, tokens: 0, cost: 0, p95Ms: null };
  return {
    slotSeconds: reports[0]?.slotSeconds ?? 0,
    points: [...points.values()].sort((a, b) => a.at - b.at),
    total: reports.reduce((sum, { total }) => added(sum, total), none),
  };
}

function added(a: Numbers, b: Numbers): Numbers {
  return {
    requests: a.requests + b.requests,
    failed: a.failed + b.failed,
    rejected: a.rejected + b.rejected,
    tokens: a.tokens + b.tokens,
    cost: a.cost + b.cost,
    p95Ms: a.p95Ms === null ? b.p95Ms : Math.max(a.p95Ms, b.p95Ms ?? 0),
  };
}
