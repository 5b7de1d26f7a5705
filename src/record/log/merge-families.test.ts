import assert from "node:assert/strict";
import { test } from "node:test";
import { cumulativeFamilies, mergeFamilies } from "./merge-families.ts";
import { createMetrics } from "./metrics.ts";

function thread(requests: number, seconds: readonly number[]) {
  const metrics = createMetrics();
  const counter = metrics.counter("requests_total", "Requests.", ["route"]);
  counter.labels("a").add(requests);
  if (requests > 1) counter.labels("b").add(1);
  const histogram = metrics.histogram("seconds", "Seconds.", [1, 10]).labels();
  for (const value of seconds) histogram.observe(value);
  metrics.gauge("connections", "Connections.", () => requests);
  return metrics.collect();
}

test("points with the same labels are added, with their buckets", () => {
  assert.deepEqual(mergeFamilies([thread(1, [0.5, 20]), thread(2, [5])]), [
    {
      name: "requests_total",
      help: "Requests.",
      type: "counter",
      points: [
        { labels: { route: "a" }, value: 3 },
        { labels: { route: "b" }, value: 1 },
      ],
    },
    {
      name: "seconds",
      help: "Seconds.",
      type: "histogram",
      points: [{ labels: {}, value: 25.5, buckets: { bounds: [1, 10], counts: [1, 1, 1] } }],
    },
    { name: "connections", help: "Connections.", type: "gauge", points: [{ labels: {}, value: 3 }] },
  ]);
});

test("gauges of a thread that ended do not stay", () => {
  assert.deepEqual(
    cumulativeFamilies(thread(1, [])).map(({ name }) => name),
    ["requests_total", "seconds"],
  );
  assert.deepEqual(mergeFamilies([]), []);
});
