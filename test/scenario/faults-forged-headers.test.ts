/**
 * Request headers that only we may say something with (row L12 of the threat table): a backend sees ours or none.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const forged = {
  "x-ratelimit-limit": "1000000",
  "X-RateLimit-Remaining": "999999",
  "x-ratelimit-user": "somebody-else",
  "x-ratelimits": "another name",
};

for (const trusted of [false, true]) {
  const peer = trusted ? "a trusted proxy" : "a client";
  test(`what ${peer} says about rate limits reaches neither policies nor the backend [L12] [B7]`, async (t) => {
    const backend = await backendFor(t);
    const gateway = await gatewayFor(
      t,
      `config: { trustedProxies: [${trusted ? "127.0.0.0/8" : ""}] }
gateways: { default: { port: 0 } }
routes:
  - backends: [{ host: "${backend.host}" }]
    policies:
      authorization: { rules: [{ deny: '"x-ratelimit-user" in request.headers' }] }
      rateLimit: { local: [{ requests: 5, unit: Minutes }] }
`,
    );
    const response = await fetch(gateway.url(), { headers: forged });
    assert.equal(response.status, 200);
    const seen = Object.entries(backend.received[0]?.headers ?? {}).filter(([name]) => name.startsWith("x-ratelimit"));
    assert.deepEqual(seen, [["x-ratelimits", "another name"]]);
    assert.deepEqual(
      ["limit", "remaining"].map((name) => response.headers.get(`x-ratelimit-${name}`)),
      ["5", "4"],
    );
  });
}

test("what a policy of the route adds under these names does reach the backend", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - backends: [{ host: "${backend.host}" }]
    policies: { requestHeaderModifier: { set: { x-ratelimit-user: ours } } }
`,
  );
  await fetch(gateway.url(), { headers: forged });
  assert.equal(backend.received[0]?.headers["x-ratelimit-user"], "ours");
});
