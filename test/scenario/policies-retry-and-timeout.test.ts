/**
 * `retry` and `timeout` through the whole pipeline: how often, how long, and what is never sent twice.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { openRawClient } from "../support/raw-client.ts";
import { backendFor, behindGateway, gatewayFor } from "../support/scenario.ts";
import { roundTrip } from "../support/under-way.ts";

const cases: [name: string, retry: string, method: string, statuses: number[], answered: number, attempts: number][] = [
  ["a listed status is tried again", "attempts: 1, codes: [503]", "GET", [503, 200], 200, 2],
  ["as often as the policy says", "attempts: 3, codes: [503]", "GET", [503, 503, 503, 200], 200, 4],
  ["the last answer is passed on as it is", "attempts: 1, codes: [503]", "GET", [503, 503, 200], 503, 2],
  ["another status is not", "attempts: 3, codes: [503]", "GET", [500, 200], 500, 1],
  ["without codes no status is", "attempts: 3", "GET", [503, 200], 503, 1],
  ["a response that meets the condition is", "attempts: 1, condition: response.code == 500", "GET", [500, 200], 200, 2],
  [
    "a condition adds to codes",
    "attempts: 2, codes: [503], condition: response.code == 500",
    "GET",
    [503, 500],
    200,
    3,
  ],
  ["a condition that fails is not met", 'attempts: 1, condition: "has(response.nothing)"', "GET", [500], 500, 1],
  [
    "a precondition limits it",
    "attempts: 1, codes: [503], precondition: 'request.method == \"GET\"'",
    "POST",
    [503],
    503,
    1,
  ],
  [
    "a precondition that is met",
    "attempts: 1, codes: [503], precondition: 'request.method == \"GET\"'",
    "GET",
    [503],
    200,
    2,
  ],
  ["a POST is too, because the operator named the status", "attempts: 1, codes: [503]", "POST", [503, 200], 200, 2],
];
for (const [name, retry, method, statuses, answered, attempts] of cases) {
  test(`retry: ${name}`, async (t) => {
    const bodies: string[] = [];
    const { gateway } = await behindGateway(
      t,
      (req, res) => {
        let body = "";
        req.on("data", (chunk) => {
          body += chunk;
        });
        req.on("end", () => {
          res.writeHead(statuses[bodies.length] ?? 200);
          bodies.push(body);
          res.end(`answer ${bodies.length}`);
        });
      },
      `policies: { retry: { ${retry}, backoff: 1ms } }`,
    );
    const response = await fetch(gateway.url(), { method, ...(method === "POST" ? { body: "the body" } : {}) });
    assert.equal(response.status, answered);
    assert.equal(await response.text(), `answer ${attempts}`);
    assert.deepEqual(bodies, new Array(attempts).fill(method === "POST" ? "the body" : ""), "the same body each time");
  });
}

test("retry: a body that is still arriving is sent once", async (t) => {
  let attempts = 0;
  const { gateway } = await behindGateway(
    t,
    (req, res) => {
      attempts += 1;
      req.resume().on("end", () => {
        res.writeHead(503);
        res.end();
      });
    },
    "policies: { retry: { attempts: 3, codes: [503], backoff: 1ms } }",
  );
  for (const headers of ["Content-Length: 70000", "Transfer-Encoding: chunked"]) {
    attempts = 0;
    const client = openRawClient(gateway.port());
    const isChunked = headers.startsWith("Transfer");
    client.write(`PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${headers}\r\n\r\n`);
    client.write(isChunked ? "3\r\nabc\r\n0\r\n\r\n" : Buffer.alloc(70_000));
    assert.equal((await client.ended()).status, 503);
    assert.equal(attempts, 1, headers);
  }
});

test("retry: a backend that cannot be reached is tried again, a POST too, with doubled waits", async (t) => {
  const clock = fakeClock();
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }\nroutes: [{ backends: [{ host: "127.0.0.1:1" }], policies: { retry: { attempts: 3, backoff: 100ms } } }]`,
    { clock },
  );
  let answered = false;
  const answer = fetch(gateway.url(), { method: "POST", body: "x" }).then((response) => {
    answered = true;
    return response;
  });
  let waited = 0;
  await eventually("it was answered", async () => {
    await clock.advance(10);
    waited += 10;
    return answered;
  });
  assert.equal((await answer).status, 502);
  assert.ok(waited >= 700, `100 + 200 + 400 ms, and not ${waited}`);
});

test("retry: the request is the route's own for every attempt, not what the last backend made of it", async (t) => {
  const seen: (string | undefined)[] = [];
  const backend = await backendFor(t, (req, res) => {
    seen.push(req.headers["x-trace"] as string | undefined);
    res.writeHead(503);
    res.end();
  });
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes: [{ policies: { retry: { attempts: 2, codes: [503], backoff: 1ms } }, backends: [{ host: "${backend.host}", policies: { requestHeaderModifier: { add: { x-trace: one } } } }] }]`,
  );
  await fetch(gateway.url());
  assert.deepEqual(seen, ["one", "one", "one"]);
});

test("retry: a client that leaves between two attempts ends them", async (t) => {
  let attempts = 0;
  const clock = fakeClock();
  const { gateway } = await behindGateway(
    t,
    (_req, res) => {
      attempts += 1;
      res.writeHead(503);
      res.end();
    },
    "policies: { retry: { attempts: 5, codes: [503], backoff: 1m } }",
    { clock },
  );
  const client = openRawClient(gateway.port());
  client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await eventually("the first attempt failed", () => attempts === 1);
  client.close();
  await gateway.logged("end=aborted");
  await clock.advance(600_000);
  assert.equal(attempts, 1);
});

const timeouts: [name: string, policy: string, afterMs: number][] = [
  ["requestTimeout", "requestTimeout: 2s", 2_000],
  ["backendRequestTimeout", "backendRequestTimeout: 3s", 3_000],
  ["the shorter of both", "requestTimeout: 5s, backendRequestTimeout: 1s", 1_000],
  ["the shorter of both, the other way round", "requestTimeout: 1s, backendRequestTimeout: 5s", 1_000],
  ["a requestTimeout beyond the default", "requestTimeout: 5m", 300_000],
];
for (const [name, policy, afterMs] of timeouts) {
  test(`timeout: ${name} ends the wait for a head`, async (t) => {
    const clock = fakeClock();
    let arrived = false;
    const { gateway } = await behindGateway(t, () => (arrived = true), `policies: { timeout: { ${policy} } }`, {
      clock,
    });
    let status = 0;
    const answer = fetch(gateway.url()).then((response) => {
      status = response.status;
    });
    await eventually("the backend was asked", () => arrived);
    await clock.advance(afterMs - 10);
    await roundTrip(gateway);
    assert.equal(status, 0, "not yet");
    await clock.advance(20);
    await answer;
    assert.equal(status, 504);
  });
}

test("timeout: 0s means no limit, and a running stream has none either", async (t) => {
  const clock = fakeClock();
  const held: import("node:http").ServerResponse[] = [];
  const { gateway } = await behindGateway(
    t,
    (_req, res) => void held.push(res),
    "policies: { timeout: { requestTimeout: 0s, backendRequestTimeout: 0s } }",
    { clock },
  );
  const answer = fetch(gateway.url());
  await eventually("the backend was asked", () => held.length === 1);
  await clock.advance(900_000);
  held[0]?.write("first ");
  const response = await answer;
  await clock.advance(900_000);
  held[0]?.end("last");
  assert.equal(await response.text(), "first last");
});

test("timeout: the limit is over all attempts", async (t) => {
  const clock = fakeClock();
  let attempts = 0;
  const { gateway } = await behindGateway(
    t,
    () => (attempts += 1),
    "policies: { timeout: { requestTimeout: 3s, backendRequestTimeout: 2s }, retry: { attempts: 5, backoff: 1ms } }",
    { clock },
  );
  let status = 0;
  const answer = fetch(gateway.url()).then((response) => {
    status = response.status;
  });
  await eventually("the first attempt", () => attempts === 1);
  await clock.advance(2_010);
  await eventually("the second attempt", () => attempts === 2);
  await clock.advance(900);
  assert.equal(status, 0);
  await eventually("the limit ends it", async () => {
    await clock.advance(100);
    return status !== 0;
  });
  await answer;
  assert.equal(status, 504);
});

test("the innermost of gateway, route and backend wins, field by field", async (t) => {
  const clock = fakeClock();
  let asked = 0;
  const backend = await backendFor(t, () => (asked += 1));
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0, policies: { timeout: { backendRequestTimeout: 1s } } } }
routes:
  - { matches: [{ path: { exact: /gateway } }], backends: [{ host: "${backend.host}" }] }
  - { matches: [{ path: { exact: /route } }], policies: { timeout: { backendRequestTimeout: 2s } }, backends: [{ host: "${backend.host}" }] }
  - { matches: [{ path: { exact: /backend } }], policies: { timeout: { backendRequestTimeout: 2s } }, backends: [{ host: "${backend.host}", policies: { timeout: { backendRequestTimeout: 3s } } }] }
`,
    { clock },
  );
  for (const [path, ms] of [
    ["/gateway", 1_000],
    ["/route", 2_000],
    ["/backend", 3_000],
  ] as const) {
    let status = 0;
    const before = asked;
    const answer = fetch(gateway.url() + path).then((response) => {
      status = response.status;
    });
    await eventually("the backend was asked", () => asked > before);
    await clock.advance(ms - 10);
    await roundTrip(gateway);
    assert.equal(status, 0, `${path} not yet`);
    await clock.advance(20);
    await answer;
    assert.equal(status, 504);
  }
});
