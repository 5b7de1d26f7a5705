/**
 * A canary: a new version of a route's backend for a share or a condition, withdrawn by itself when it fails or is slow.
 */
import assert from "node:assert/strict";
import type { RequestListener } from "node:http";
import { type TestContext, test } from "node:test";
import { type FakeClock, fakeClock } from "../support/fake-clock.ts";
import type { TestGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

async function onTrial(
  t: TestContext,
  canary: string,
  listener: RequestListener = (_, response) => response.end("new"),
  clock = fakeClock(),
): Promise<{ gateway: TestGateway; clock: FakeClock }> {
  const old = await backendFor(t, (_, response) => response.end("old"));
  const fresh = await backendFor(t, listener);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ name: r, backends: [{ host: "${old.host}" }, { host: "${fresh.host}", canary: { ${canary} } }] }]
`,
    { clock },
  );
  return { gateway, clock };
}

async function answers(gateway: TestGateway, count: number, headers: Record<string, string> = {}) {
  const seen: Record<string, number> = {};
  for (let i = 0; i < count; i++) {
    const response = await fetch(gateway.url(), { headers });
    const text = await response.text();
    const key = response.status === 200 ? text : String(response.status);
    seen[key] = (seen[key] ?? 0) + 1;
  }
  return seen;
}

const HEADER = { "x-canary": "1" };
const WHEN = `when: 'request.headers["x-canary"] == "1"'`;

test("a condition chooses the new version, a share some of the requests", async (t) => {
  const { gateway } = await onTrial(t, WHEN);
  assert.deepEqual([await answers(gateway, 5), await answers(gateway, 5, HEADER)], [{ old: 5 }, { new: 5 }]);
  const shared = await onTrial(t, "share: 50");
  const { old = 0, new: fresh = 0 } = await answers(shared.gateway, 100);
  assert.ok(old > 10 && fresh > 10, `${old} ${fresh}`);
  const all = await onTrial(t, "share: 100");
  assert.deepEqual(await answers(all.gateway, 5), { new: 5 });
});

test("a new version that fails is withdrawn, and the decision is in log, metrics and dump", async (t) => {
  let isFailing = false;
  const { gateway, clock } = await onTrial(t, `${WHEN}, maxErrors: 20, minRequests: 10, window: 1m`, (_, response) =>
    response.writeHead(isFailing ? 503 : 200).end("new"),
  );
  assert.deepEqual(await answers(gateway, 8, HEADER), { new: 8 });
  isFailing = true;
  // 2 of 10 are not more than a fifth, 3 of 11 are.
  assert.deepEqual(await answers(gateway, 5, HEADER), { 503: 3, old: 2 });
  await gateway.logged("canary withdrawn");
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  assert.match(dump, /"state": "withdrawn",\s+"at": "[^"]+",\s+"reason": "3 of 11 requests failed"/);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.match(metrics, /gateway_canary_withdrawn_total\{backend="r\/backend1"\} 1/);
  isFailing = false;
  await clock.advance(3_600_000);
  assert.deepEqual(await answers(gateway, 3, HEADER), { old: 3 }, "it does not come back by itself");
});

test("failures of another window do not count, and a dead canary is withdrawn like a failing one", async (t) => {
  let isFailing = true;
  const { gateway, clock } = await onTrial(t, `${WHEN}, minRequests: 4, window: 1s`, (request, response) => {
    if (isFailing) request.socket.destroy();
    else response.end("new");
  });
  assert.deepEqual(await answers(gateway, 3, HEADER), { 502: 3 });
  await clock.advance(1_000);
  isFailing = false;
  assert.deepEqual(await answers(gateway, 6, HEADER), { new: 6 });
  await clock.advance(1_000);
  isFailing = true;
  assert.deepEqual(await answers(gateway, 6, HEADER), { 502: 4, old: 2 });
});

test("a slow new version is withdrawn", async (t) => {
  const clock = fakeClock();
  const slow: RequestListener = (_, response) => void clock.advance(150).then(() => response.end("new"));
  const { gateway } = await onTrial(t, `${WHEN}, maxLatency: 100ms, minRequests: 2`, slow, clock);
  assert.deepEqual(await answers(gateway, 4, HEADER), { new: 2, old: 2 });
  await gateway.logged("took longer than 100 ms");
});

test("what makes no sense is rejected at load", async (t) => {
  for (const backends of [
    '[{ host: "127.0.0.1:1", canary: { share: 5 } }]',
    '[{ host: "127.0.0.1:1" }, { host: "127.0.0.1:2", canary: {} }]',
    '[{ host: "127.0.0.1:1" }, { host: "127.0.0.1:2", canary: { share: 0 } }]',
    '[{ host: "127.0.0.1:1" }, { host: "127.0.0.1:2", canary: { share: 5, when: "true" } }]',
    '[{ host: "127.0.0.1:1" }, { mcp: { targets: [{ name: a, stdio: { cmd: cat } }] }, canary: { share: 5 } }]',
  ])
    await assert.rejects(
      gatewayFor(t, `gateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: ${backends} }]\n`),
      backends,
    );
});
