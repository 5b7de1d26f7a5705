/** A field of a request has the same value in every output that has it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { anAnsweredExchange, type ExchangeParts, finishedRequest } from "../../test/support/exchange.ts";
import { fakeClock } from "../../test/support/fake-clock.ts";
import { Random } from "../../test/support/random.ts";
import { COLUMNS, type HistoryRow, type RowValues } from "./history/history-row.ts";
import { createHistoryRecorder, recordFromRow } from "./history-record.ts";
import { createMetrics } from "./log/metrics.ts";
import { createRecentRequests } from "./recent-requests.ts";
import { logFields } from "./request-fields.ts";
import { createRequestMetrics } from "./request-metrics.ts";
import { createRedaction } from "./trace/redact.ts";
import { createTrafficHistory } from "./traffic.ts";

const redaction = createRedaction();

function outputsOf(parts: ExchangeParts, route: string | undefined, status: number | undefined) {
  const exchange = anAnsweredExchange(parts);
  exchange.route = route;
  const finished = finishedRequest(exchange, { status, end: "complete", responseBytes: 7 }, 12.3456, redaction);
  const rows: RowValues[] = [];
  createHistoryRecorder(redaction, undefined, (row) => void rows.push(row))(finished);
  const row = Object.fromEntries(COLUMNS.map((name, i) => [name, rows[0]?.[i]])) as unknown as HistoryRow;
  const log = logFields(finished.values);
  const metrics = createMetrics();
  createRequestMetrics(metrics)(finished);
  const traffic = createTrafficHistory(fakeClock());
  traffic.count(finished);
  const recent = createRecentRequests({ clock: fakeClock(), redaction, watcher: () => undefined, kept: undefined });
  recent.settled(finished);
  const [record] = recent.list({ limit: 1 });
  return { row, log, metrics: metrics.render(), traffic, record, stored: recordFromRow(row) };
}

const KEYS: readonly [apiKey: Readonly<Record<string, unknown>>, name: string | undefined][] = [
  [{ name: "ci", user_id: "ada" }, "ci"],
  [{ name: "ci" }, "ci"],
  [{ user_id: "ada" }, "ada"],
  [{ name: 7, user_id: "ada" }, undefined],
  [{}, undefined],
];
for (const [apiKey, name] of KEYS)
  test(`the key ${JSON.stringify(apiKey)} has the name ${name ?? "unnamed"} in all outputs`, () => {
    const { row, metrics, traffic } = outputsOf({ apiKey }, "r", 200);
    assert.equal(row.key, name ?? "");
    assert.match(
      metrics,
      new RegExp(`gateway_key_requests_total\\{key="${name ?? "unnamed"}",status_class="2xx"\\} 1\n`),
    );
    assert.deepEqual(
      traffic.rows("key", 3_600).rows.map((one) => one.name),
      name === undefined ? [] : [[name]],
    );
  });

test("a record from the history has the fields of the record in memory, and the log has their values", () => {
  const random = new Random(54);
  const maybe = <Value>(value: Value): Value | undefined => (random.int(2) === 0 ? value : undefined);
  for (let i = 0; i < 200; i++) {
    const subject = maybe("ada");
    const isMcp = maybe(true);
    const { log, record, stored } = outputsOf(
      {
        path: `/p${i}`,
        host: `h${random.int(3)}.test`,
        ...(subject && { jwt: { sub: subject } }),
        ...(maybe(true) && { backend: { name: "b", type: "static", protocol: "http" } }),
        ...(isMcp && { mcp: { methodName: "tools/call", tool: { name: "read", target: "files" }, outcome: "ok" } }),
        ...(!isMcp && { llm: { provider: "p", requestModel: "m", inputTokens: random.int(9), cost: 0.25 } }),
      },
      maybe("r"),
      maybe(200 + random.int(300)),
    );
    if (record === undefined) throw new Error("the request was not kept");
    // The history stores neither the port of the client nor the time at the server.
    const same = { seq: -1, isShort: true, source: { ...record.source, port: 0 }, upstreamMs: null };
    assert.deepEqual(stored, { ...record, ...same });
    const { id, route, backend, host, path, status, durationMs, responseBytes, method } = record;
    assert.deepEqual(
      [log.id, log.route ?? null, log.backend ?? null, log.host, log.path, log.status ?? null, log.user ?? null],
      [id, route, backend, host, path, status, subject ?? null],
    );
    assert.deepEqual([log.durationMs, log.bytes, log.method], [durationMs, responseBytes, method]);
  }
});
