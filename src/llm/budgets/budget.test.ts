/** The periods of budgets, at their edges. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { keptUntilMs, type PeriodUnit, periodAt, secondsLeft } from "./budget.ts";

const at = (text: string): number => Date.parse(text);

const cases: readonly (readonly [PeriodUnit, string, string, string, string])[] = [
  ["day", "2026-11-15T23:59:59.999Z", "2026-11-15", "2026-11-15T00:00:00Z", "2026-11-16T00:00:00Z"],
  ["day", "2026-11-16T00:00:00.000Z", "2026-11-16", "2026-11-16T00:00:00Z", "2026-11-17T00:00:00Z"],
  ["week", "2026-11-15T12:00:00Z", "2026-11-09", "2026-11-09T00:00:00Z", "2026-11-16T00:00:00Z"],
  ["week", "2026-11-16T00:00:00Z", "2026-11-16", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"],
  ["week", "2027-01-01T00:00:00Z", "2026-12-28", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"],
  ["month", "2026-12-31T23:59:59.999Z", "2026-12", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"],
  ["month", "2028-02-29T00:00:00Z", "2028-02", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"],
];
for (const [unit, now, name, start, end] of cases) {
  test(`the ${unit} of ${now} is ${name}`, () => {
    assert.deepEqual(periodAt(unit, at(now)), { name, startMs: at(start), endMs: at(end) });
  });
}

test("what is left of a period is at least a second, and what is counted outlives it", () => {
  const period = periodAt("month", at("2026-11-30T23:59:59.999Z"));
  assert.equal(secondsLeft(period, at("2026-11-30T23:59:59.999Z")), 1);
  assert.equal(keptUntilMs(period), at("2026-12-31T00:00:00Z"));
});
