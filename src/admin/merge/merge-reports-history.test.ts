import assert from "node:assert/strict";
import { test } from "node:test";
import { mergeHistories, mergeTrafficRows } from "./merge-reports.ts";

const point = (at: number, requests: number, p95Ms: number | null) => ({
  at,
  requests,
  failed: 0,
  rejected: 0,
  tokens: requests * 10,
  cost: 0,
  mcpCalls: 0,
  p50Ms: p95Ms,
  p95Ms,
  p99Ms: p95Ms,
});

test("slots of the same time are added, and the largest p95 counts", () => {
  const merged = mergeHistories([
    { slotSeconds: 10, coveredSeconds: 20, points: [point(10, 2, 5), point(20, 0, null)], total: point(0, 2, 5) },
    { slotSeconds: 10, coveredSeconds: 20, points: [point(0, 1, 1), point(10, 3, 9)], total: point(0, 4, 9) },
  ]);
  assert.deepEqual(merged.points, [point(0, 1, 1), point(10, 5, 9), point(20, 0, null)]);
  assert.deepEqual([merged.total.requests, merged.total.tokens, merged.total.p95Ms], [6, 60, 9]);
});

test("no reports give an empty history", () => {
  assert.deepEqual(mergeHistories([]).points, []);
});

test("rows with the same name are added, with trends that end at the same time", () => {
  const row = (name: string, requests: number, trend: readonly number[]) => ({
    ...point(0, requests, 5),
    name: ["default", name, "api"],
    trend,
  });
  const merged = mergeTrafficRows([
    { slotSeconds: 60, coveredSeconds: 180, rows: [row("a", 6, [1, 2, 3])] },
    { slotSeconds: 60, coveredSeconds: 60, rows: [row("b", 9, [9]), row("a", 4, [4])] },
  ]);
  assert.equal(merged.coveredSeconds, 180);
  assert.deepEqual(
    merged.rows.map(({ name, requests, trend }) => [name[1], requests, trend]),
    [
      ["a", 10, [1, 2, 7]],
      ["b", 9, [9]],
    ],
  );
});
