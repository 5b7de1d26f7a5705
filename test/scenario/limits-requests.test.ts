/**
 * Spec 2.6, 3 and 8: request limits through a real gateway, on routes and gateways, with keys, headers and reloads.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { type ShiftedClock, shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";

interface Setup {
  readonly gateway: TestGateway;
  readonly backend: TestBackend;
  readonly clock: ShiftedClock;
}

async function setUp(t: TestContext, config: (host: string) => string): Promise<Setup> {
  const backend = await startBackend();
  const clock = shiftedClock();
  const gateway = await startGateway(config(backend.host), { clock });
  t.after(() => gateway.close().finally(backend.close));
  return { gateway, backend, clock };
}

function oneRoute(rateLimit: string): (host: string) => string {
  return (host) => `
gateways: { default: { port: 0, protocol: HTTP } }
routes:
  - name: web
    backends: [{ host: "${host}" }]
    policies: { rateLimit: ${rateLimit} }
`;
}

async function statuses(url: string, count: number, headers: Record<string, string> = {}): Promise<number[]> {
  const results: number[] = [];
  for (let i = 0; i < count; i++) results.push((await fetch(url, { headers })).status);
  return results;
}

function admitted(results: readonly number[]): number {
  return results.filter((status) => status === 200).length;
}

test("a limit of 3 with a burst of 3 per second admits 6, then 3 [S2.6-4] [S7-2]", async (t) => {
  const { gateway, backend, clock } = await setUp(t, oneRoute("{ local: [{ requests: 3, unit: Seconds, burst: 3 }] }"));
  assert.deepEqual(await statuses(gateway.url(), 8), [200, 200, 200, 200, 200, 200, 429, 429]);
  assert.equal(backend.received.length, 6, "a refused request is not forwarded");
  clock.advance(1000);
  assert.deepEqual(await statuses(gateway.url(), 5), [200, 200, 200, 429, 429]);
});

test("the record of a request shows which limit was at which level, admitted or rejected", async (t) => {
  const local = "{ local: [{ requests: 2, unit: Minutes }, { requests: 9, unit: Hours }] }";
  const { gateway } = await setUp(t, oneRoute(local));
  await statuses(gateway.url(), 3);
  const listed = await fetch(`${gateway.adminUrl}/debug/requests`);
  const { requests } = (await listed.json()) as { requests: { status: number; limits: unknown }[] };
  const limit = { limit: "2 requests per minute", resetSeconds: 60 };
  assert.deepEqual(
    requests.map(({ status, limits }) => [status, limits]),
    [
      [429, [{ ...limit, remaining: "0 of 2" }]],
      [200, [{ ...limit, remaining: "0 of 2" }]],
      [200, [{ ...limit, remaining: "1 of 2" }]],
    ],
  );
});

test("successes and refusals carry the headers; a refusal reads `rate limit exceeded` [S8-9]", async (t) => {
  const { gateway, clock } = await setUp(t, oneRoute("{ local: [{ requests: 1, unit: Minutes, burst: 1 }] }"));
  const first = await fetch(gateway.url());
  assert.deepEqual(trio(first), ["2", "1", "60"]);
  await fetch(gateway.url());
  clock.advance(18_001);
  const refused = await fetch(gateway.url());
  assert.equal(refused.status, 429);
  assert.equal(await refused.text(), "rate limit exceeded");
  assert.deepEqual([...trio(refused), refused.headers.get("retry-after")], ["2", "0", "42", "42"]);
  assert.equal(refused.headers.get("x-vendor-ratelimited"), null, "only an external service sends it");
  clock.advance(41_999);
  assert.equal((await fetch(gateway.url())).status, 200, "waiting until the reset always succeeds");
});

test("every entry must pass, and the tightest one speaks [S2.6-2] [S8-14]", async (t) => {
  const { gateway } = await setUp(
    t,
    oneRoute("{ local: [{ requests: 100, unit: Hours }, { requests: 2, unit: Minutes }] }"),
  );
  assert.deepEqual(trio(await fetch(gateway.url())), ["2", "1", "60"]);
  assert.deepEqual(await statuses(gateway.url(), 3), [200, 429, 429]);
});

test("each key has its own bucket; requests without one share a bucket and are not exempt [S2.6-5]", async (t) => {
  const { gateway } = await setUp(
    t,
    oneRoute(`{ local: [{ requests: 2, unit: Hours, key: 'request.headers["x-user"]' }] }`),
  );
  for (const user of ["alice", "bob"])
    assert.deepEqual(await statuses(gateway.url(), 3, { "x-user": user }), [200, 200, 429]);
  assert.deepEqual(await statuses(gateway.url(), 3), [200, 200, 429]);
  assert.deepEqual(await statuses(gateway.url(), 1, { "x-user": "" }), [429]);
});

const ceiling = (host: string): string => `
gateways:
  default:
    port: 0
    policies: { rateLimit: { local: [{ requests: 5, unit: Hours }] } }
routes:
  - name: a
    matches: [{ path: { pathPrefix: /a } }]
    backends: [{ host: "${host}" }]
    policies: { rateLimit: { local: [{ requests: 2, unit: Hours }] } }
  - name: b
    matches: [{ path: { pathPrefix: /b } }]
    backends: [{ host: "${host}" }]
`;

test("a gateway's limit is one ceiling over all its routes, and a route's own limit applies as well [S8-8]", async (t) => {
  const { gateway } = await setUp(t, ceiling);
  assert.deepEqual(await statuses(`${gateway.url()}/a`, 4), [200, 200, 429, 429]);
  // Refusals by the route's limit cost nothing at the gateway: three are left.
  assert.deepEqual(await statuses(`${gateway.url()}/b`, 4), [200, 200, 200, 429]);
  assert.deepEqual(
    await statuses(`${gateway.url()}/nowhere`, 2),
    [404, 404],
    "what is not routed costs nothing and is not limited",
  );
});

test("each gateway counts for itself [S8-1] [S8-20]", async (t) => {
  const config = oneRoute("{ local: [{ requests: 1, unit: Hours }] }");
  for (const { gateway } of [await setUp(t, config), await setUp(t, config)])
    assert.deepEqual(await statuses(gateway.url(), 2), [200, 429]);
});

test("32 concurrent clients get exactly what the budget says", async (t) => {
  const { gateway, backend } = await setUp(t, oneRoute("{ local: [{ requests: 150, unit: Hours }] }"));
  const results = await Promise.all(Array.from({ length: 32 }, () => statuses(gateway.url(), 10)));
  assert.equal(admitted(results.flat()), 150);
  assert.equal(backend.received.length, 150);
});

test("budgets survive a reload that does not change the limit, and begin anew when it changes", async (t) => {
  const { gateway, backend } = await setUp(t, oneRoute("{ local: [{ requests: 2, unit: Hours }] }"));
  assert.deepEqual(await statuses(gateway.url(), 3), [200, 200, 429]);
  const moved = oneRoute("{ local: [{ requests: 50, unit: Hours }, { requests: 2, unit: Hours }] }")(backend.host);
  assert.equal(await gateway.reload(moved), "loaded");
  assert.deepEqual(await statuses(gateway.url(), 1), [429]);
  assert.equal(await gateway.reload(oneRoute("{ local: [{ requests: 1, unit: Hours }] }")(backend.host)), "loaded");
  assert.deepEqual(await statuses(gateway.url(), 2), [200, 429]);
});

test("a request limit whose key reads llm.* is reported at load and uses the shared bucket [S8-2]", async (t) => {
  const { gateway } = await setUp(t, oneRoute("{ local: [{ requests: 1, unit: Hours, key: llm.requestModel }] }"));
  await gateway.logged("cannot read llm");
  assert.deepEqual(await statuses(gateway.url(), 2), [200, 429]);
});

test("a backend's own headers of these names do not pass [B7] [S8-11]", async (t) => {
  const backend = await startBackend((_request, response) => {
    response.writeHead(200, {
      "x-ratelimit-limit": "999",
      "x-ratelimit-remaining": "998",
      "x-vendor-ratelimited": "true",
    });
    response.end("ok");
  });
  const limited = oneRoute("{ local: [{ requests: 5, unit: Hours }] }")(backend.host);
  const unlimited = `  - { matches: [{ path: { exact: /unlimited } }], backends: [{ host: "${backend.host}" }] }\n`;
  const gateway = await startGateway(`${limited.trimEnd()}\n${unlimited}`, { clock: shiftedClock() });
  t.after(() => gateway.close().finally(backend.close));
  const response = await fetch(gateway.url());
  assert.deepEqual(trio(response), ["5", "4", "3600"]);
  assert.equal(response.headers.get("x-vendor-ratelimited"), null);
  const free = await fetch(`${gateway.url()}/unlimited`);
  assert.deepEqual([free.headers.get("x-ratelimit-limit"), free.headers.get("x-vendor-ratelimited")], ["999", null]);
});

test("the mcp section takes a limit too, and it comes before the server is asked", async (t) => {
  const { gateway } = await setUp(
    t,
    () => `
mcp:
  port: 0
  targets: [{ name: absent, stdio: { cmd: "${process.execPath}", args: ["-e", ""] } }]
  policies: { rateLimit: { local: [{ requests: 1, unit: Hours }] } }
`,
  );
  const initialize = (): Promise<Response> =>
    fetch(`${gateway.url()}/mcp`, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "initialize",
        params: { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: { name: "t", version: "1" } },
      }),
    });
  const first = await initialize();
  assert.notEqual(first.status, 429);
  assert.equal(first.headers.get("x-ratelimit-remaining"), "0");
  await first.text();
  assert.equal((await initialize()).status, 429);
});

function trio(response: Response): (string | null)[] {
  return ["limit", "remaining", "reset"].map((name) => response.headers.get(`x-ratelimit-${name}`));
}
