import assert from "node:assert/strict";
import { test } from "node:test";
import { mergeHistories } from "./merge-reports.ts";

const point = (at: number, requests: number, p95Ms: number | null) => ({
  at,
  requests,
  failed: 0,
  rejected: 0,
  tokens: requests * 10,
  cost: 0,
  p95Ms,
});

test("slots of the same time are added, and the largest p95 counts", () => {
  const merged = mergeHistories([
    { slotSeconds: 10, points: [point(10, 2, 5), point(20, 0, null)], total: point(0, 2, 5) },
    { slotSeconds: 10, points: [point(0, 1, 1), point(10, 3, 9)], total: point(0, 4, 9) },
  ]);
  assert.deepEqual(merged.points, [point(0, 1, 1), point(10, 5, 9), point(20, 0, null)]);
  assert.deepEqual([merged.total.requests, merged.total.tokens, merged.total.p95Ms], [6, 60, 9]);
});

test("no reports give an empty history", () => {
  assert.deepEqual(mergeHistories([]).points, []);
});
