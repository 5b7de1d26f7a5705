import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_TRAFFIC, type TrafficRow, type TrafficRows } from "../../record/trace/traffic-numbers.ts";
import { topRows, topText } from "./top-command.ts";

function row(name: readonly string[], numbers: Partial<TrafficRow>): TrafficRow {
  return { ...NO_TRAFFIC, trend: [], name, ...numbers };
}

const report = (...rows: TrafficRow[]): TrafficRows => ({
  slotSeconds: 60,
  windowSeconds: 80,
  coveredSeconds: 9,
  rows,
});

test("rows are added by name, the busiest first, with rates over the whole window", () => {
  const [chat, none] = topRows(
    report(
      row(["default", "", ""], { requests: 4, failed: 4 }),
      row(["default", "chat", "a"], { requests: 4, rejected: 1, tokens: 24, cost: 1, durations: [41, 4] }),
      row(["default", "chat", "b"], { requests: 4, rejected: 3, durations: [64, 4] }),
    ),
    "route",
  );
  assert.deepEqual([chat?.name, chat?.requests, chat?.perSecond, chat?.rejected], ["chat", 8, 0.1, 0.5]);
  assert.deepEqual([chat?.tokens, chat?.cost, Math.round(chat?.p95Ms ?? 0)], [24, 1, 44]);
  assert.deepEqual([none?.name, none?.failed], ["(no route)", 1]);
  assert.equal(topRows(report(row(["files", "a/b"], { requests: 1 })), "tool")[0]?.name, "files/a/b");
});

test("the screen has no control characters from traffic, and reports omitted rows", () => {
  const many = Array.from({ length: 11 }, (_unused, i) => row(["default", `route-${i}`, ""], { requests: 1 }));
  const tool = topRows(report(row(["files", "read\u001b[2J"], { requests: 1 })), "tool");
  const text = topText({ windowMs: 80_000, route: topRows(report(...many), "route"), tool }, 4, (one) => one);
  assert.ok(!text.includes("\u001b"));
  assert.match(text, /… 7 more: gwctl top --by route/);
  assert.match(text, /^ROUTE +RATE +REQUESTS/);
  assert.equal(
    topText({ windowMs: 80_000, route: [] }, 4, (one) => one),
    "no requests yet\n",
  );
});
