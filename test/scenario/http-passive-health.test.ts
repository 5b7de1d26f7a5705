/**
 * Passive health: a server that takes no connection is left for a while, so that a dead one of two costs at most one request and
 * not half of them, and it returns when it answers again.
 */
import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import { type TestContext, test } from "node:test";
import { fakeClock } from "../support/fake-clock.ts";
import { freePort } from "../support/free-port.ts";
import type { TestGateway } from "../support/gateway.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

function listening(t: TestContext, port: number): Promise<Server> {
  const server = createServer((_, response) => response.end("second"));
  t.after(() => server.close());
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}

async function statuses(gateway: TestGateway, count: number): Promise<Map<number | string, number>> {
  const seen = new Map<number | string, number>();
  for (let i = 0; i < count; i++) {
    const response = await fetch(gateway.url());
    const text = await response.text();
    const key = response.status === 200 ? text : response.status;
    seen.set(key, (seen.get(key) ?? 0) + 1);
  }
  return seen;
}

for (const kind of ["host", "service"] as const) {
  // A connection of a service that fails is tried again at another endpoint, so a dead one costs no request.
  const oneTrial = kind === "host" ? { 502: 1, first: 39 } : { first: 40 };

  test(`a dead one of two costs at most one request, and returns by one request (${kind})`, async (t) => {
    const clock = fakeClock();
    const first = await backendFor(t, (_, response) => response.end("first"));
    const port = await freePort();
    const backends =
      kind === "host"
        ? `[{ host: "${first.host}" }, { host: "127.0.0.1:${port}" }]`
        : `[{ service: { name: s, endpoints: ["${first.host}", "127.0.0.1:${port}"] } }]`;
    const gateway = await gatewayFor(
      t,
      `gateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ name: r, backends: ${backends} }]\n`,
      { clock },
    );
    assert.deepEqual(Object.fromEntries(await statuses(gateway, 40)), oneTrial);
    await gateway.logged("backend cannot be reached");
    const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
    assert.match(dump, /"failures": 1,\s+"resting": true/);
    const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
    assert.match(metrics, /gateway_backend_rests_total\{backend="[^"]+"\} 1/);

    // Still dead: the trial costs one request again, and the rest is longer.
    await clock.advance(1_000);
    assert.deepEqual(Object.fromEntries(await statuses(gateway, 40)), oneTrial);
    await clock.advance(1_999);
    assert.deepEqual(Object.fromEntries(await statuses(gateway, 20)), { first: 20 });

    await listening(t, port);
    await clock.advance(1);
    const back = await statuses(gateway, 40);
    assert.ok((back.get("second") ?? 0) > 5 && back.get(502) === undefined, JSON.stringify([...back]));
    assert.doesNotMatch(await (await fetch(`${gateway.adminUrl}/config_dump`)).text(), /"resting"/);
  });
}

test("a server that is alone is asked every time, and one that answers with errors is not left", async (t) => {
  const port = await freePort();
  const alone = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: [{ host: "127.0.0.1:${port}" }] }]\n`,
  );
  assert.deepEqual(Object.fromEntries(await statuses(alone, 3)), { 502: 3 });
  await listening(t, port);
  assert.deepEqual(Object.fromEntries(await statuses(alone, 3)), { second: 3 });

  const failing = await backendFor(t, (_, response) => response.writeHead(503).end());
  const other = await backendFor(t, (_, response) => response.end("first"));
  const mixed = await gatewayFor(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ backends: [{ service: { name: s, endpoints: ["${failing.host}", "${other.host}"] } }] }]
`,
  );
  assert.deepEqual(Object.fromEntries(await statuses(mixed, 10)), { 503: 5, first: 5 });
});
