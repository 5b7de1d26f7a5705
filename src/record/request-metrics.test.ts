import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, finishedRequest } from "../../test/support/exchange.ts";
import { Random } from "../../test/support/random.ts";
import type { Outcome } from "../core/policy.ts";
import { createMetrics } from "./log/metrics.ts";
import { createRequestMetrics } from "./request-metrics.ts";

const REQUESTS = 20_000;

function start() {
  const metrics = createMetrics();
  const record = createRequestMetrics(metrics);
  const values = (label: string): Set<string> =>
    new Set(
      metrics
        .collect()
        .flatMap(({ points }) => points.flatMap(({ labels }) => (label in labels ? (labels[label] ?? "") : []))),
    );
  return { metrics, record, values };
}

const outcome = (status: number | undefined): Outcome => ({ status, end: "complete", responseBytes: 1 });

test("whatever methods, statuses, and keys a client and a backend choose, the series are few and short", () => {
  const { metrics, record, values } = start();
  const random = new Random(1);
  for (let i = 0; i < REQUESTS; i++) {
    const method = random.oneIn(2)
      ? random.pick(["GET", "DELETE", "PROPFIND", "MKCOL"])
      : `X${i}`.repeat(1 + random.int(2_000));
    const apiKey = { name: random.oneIn(2) ? `key-${i % 3_000}` : "k".repeat(random.int(100_000)) };
    const exchange = anExchange({ method, ...(random.oneIn(10) ? { apiKey } : {}) });
    record(finishedRequest(exchange, outcome(100 + random.int(900)), 1));
  }
  assert.equal(values("method").size, 3);
  assert.deepEqual([...values("method")].sort(), ["DELETE", "GET", "other"]);
  assert.ok(values("status").size < 110, String(values("status").size));
  assert.ok(values("key").size <= 1_001, String(values("key").size));
  assert.ok([...values("key")].every((key) => key.length <= 200));
  assert.ok(metrics.render().length < 1_000_000, String(metrics.render().length));
});

test("registered statuses keep their labels, and so do a few others, such as 529", () => {
  const { record, values } = start();
  for (const status of [200, 404, 529, 502]) record(finishedRequest(anExchange(), outcome(status), 1));
  for (let status = 600; status < 1_000; status++) record(finishedRequest(anExchange(), outcome(status), 1));
  record(finishedRequest(anExchange(), outcome(503), 1));
  record(finishedRequest(anExchange(), outcome(undefined), 1));
  for (const status of ["200", "404", "529", "502", "503", "other", ""])
    assert.ok(values("status").has(status), status);
  assert.ok(!values("status").has("999"));
});
