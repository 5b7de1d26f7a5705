import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_TRAFFIC, sumOfTraffic } from "../../record/trace/traffic-numbers.ts";
import { mergeHistories, mergeTrafficRows } from "./merge-reports.ts";

/** All requests took between 4.64 ms and 5.11 ms, or with `bin` 64 between 42.2 ms and 46.4 ms. */
const point = (at: number, requests: number, bin = 41) => ({
  at,
  ...sumOfTraffic([
    { ...NO_TRAFFIC, requests, tokens: requests * 10, durations: requests === 0 ? [] : [bin, requests] },
  ]),
});
const WINDOW = { slotSeconds: 10, windowSeconds: 25, coveredSeconds: 20 };

test("slots of the same time are added, and percentiles are those of all threads", () => {
  const slow = point(10, 3, 64);
  const merged = mergeHistories([
    { ...WINDOW, points: [point(10, 57), point(20, 0)], total: point(0, 57) },
    { ...WINDOW, points: [point(0, 1), slow], total: sumOfTraffic([point(0, 1), slow]) },
  ]);
  assert.deepEqual(
    merged.points.map(({ at, requests, p95Ms }) => [at, requests, Math.round(p95Ms ?? -1)]),
    [
      [0, 1, 5],
      [10, 60, 5],
      [20, 0, -1],
    ],
  );
  assert.deepEqual([merged.total.requests, merged.total.tokens], [61, 610]);
  assert.deepEqual([merged.total.p95Ms, merged.total.p99Ms], [point(0, 1).p95Ms, slow.p99Ms]);
});

test("no reports give an empty history", () => {
  assert.deepEqual(mergeHistories([]).points, []);
});

test("rows with the same name are added, with trends that end at the same time", () => {
  const row = (name: string, requests: number, trend: readonly number[]) => ({
    ...point(0, requests),
    name: ["default", name, "api"],
    trend,
  });
  const merged = mergeTrafficRows([
    { ...WINDOW, rows: [row("a", 6, [1, 2, 3])] },
    { ...WINDOW, coveredSeconds: 5, rows: [row("b", 9, [9]), row("a", 4, [4])] },
  ]);
  assert.deepEqual([merged.windowSeconds, merged.coveredSeconds], [25, 20]);
  assert.deepEqual(
    merged.rows.map(({ name, requests, trend }) => [name[1], requests, trend]),
    [
      ["a", 10, [1, 2, 7]],
      ["b", 9, [9]],
    ],
  );
});
