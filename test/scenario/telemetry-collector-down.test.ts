/**
 * A collector that is gone, never answers or answers 500 costs no request: all are answered, what waits is bounded, and what
 * is dropped is counted.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { startCollector } from "../support/otlp/collector.ts";

/** The queue's limit, and what may be under way besides. */
const QUEUE = 4096;
const BATCH = 512;

async function gatewayFor(t: TestContext, endpoint: string): Promise<TestGateway> {
  const otlp = { endpoint, spans: "request", signals: ["traces"] };
  const gateway = await startGateway(`
config: { logging: { level: "info,access=off" }, telemetry: { otlp: ${JSON.stringify(otlp)} } }
gateways: { default: { port: 0 } }
routes: [{ name: plain, policies: { directResponse: { body: ok } } }]
`);
  t.after(() => gateway.close());
  return gateway;
}

async function answered(gateway: TestGateway, count: number): Promise<number> {
  let left = count;
  let ok = 0;
  const client = async (): Promise<void> => {
    while (left-- > 0) {
      const response = await fetch(gateway.url());
      if (response.status === 200 && (await response.text()) === "ok") ok += 1;
    }
  };
  await Promise.all(Array.from({ length: 20 }, client));
  return ok;
}

async function dropped(gateway: TestGateway): Promise<number> {
  const text = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  const lines = text.matchAll(/^gateway_otlp_dropped_total\{[^}]*signal="traces"[^}]*\} (\d+)$/gm);
  return [...lines].reduce((sum, [, count]) => sum + Number(count), 0);
}

test("a collector that never answers: every request is answered, the queue is bounded, the rest is counted as dropped", async (t) => {
  const collector = await startCollector();
  t.after(() => collector.close());
  collector.status = 0;
  const gateway = await gatewayFor(t, collector.httpUrl);
  const count = QUEUE + BATCH + 400;
  assert.equal(await answered(gateway, count), count);
  assert.ok((await dropped(gateway)) >= count - QUEUE - BATCH, "no more wait than the queue takes");
});

test("a collector that answers 500: every request is answered, and each span counts as dropped", async (t) => {
  const collector = await startCollector();
  t.after(() => collector.close());
  collector.status = 500;
  const gateway = await gatewayFor(t, collector.httpUrl);
  assert.equal(await answered(gateway, 600), 600);
  await eventually("a batch is dropped", async () => (await dropped(gateway)) >= BATCH);
  collector.status = 200;
  assert.equal(await answered(gateway, 10), 10);
});

test("a collector that is gone: every request is answered, and the gateway ends", async (t) => {
  const collector = await startCollector();
  const url = collector.httpUrl;
  await collector.close();
  const gateway = await gatewayFor(t, url);
  assert.equal(await answered(gateway, 100), 100);
});
