/**
 * Injected faults and limits of requests: `delay`, conditional `directResponse`, `buffer`, and `csrf`.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { behindGateway } from "../support/scenario.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

test("a delayed request reaches the backend, and the wait is in the trace", async (t) => {
  const { gateway, backend } = await behindGateway(t, undefined, 'policies: { delay: { duration: "1ms" } }');
  const events = await traceOf(gateway, () => fetch(`${gateway.url()}/x`).then((response) => response.text()));
  assert.equal(backend.received.length, 1);
  assert.deepEqual(
    messagesOf(events, "policyEvent").map(({ kind, details }) => ({ kind, details })),
    [{ kind: "delay", details: { milliseconds: 1 } }],
  );
});

test("a condition responds instead of the backend, and other requests reach it", async (t) => {
  const policies = {
    directResponse: {
      conditional: [
        { condition: 'request.headers["x-fault"] == "1"', status: 503, bodyExpression: '"fault at " + request.path' },
      ],
    },
  };
  const { gateway, backend } = await behindGateway(t, undefined, `policies: ${JSON.stringify(policies)}`);
  const fault = await fetch(`${gateway.url()}/x`, { headers: { "x-fault": "1" } });
  assert.deepEqual([fault.status, await fault.text()], [503, "fault at /x"]);
  assert.equal(backend.received.length, 0);
  assert.equal((await fetch(`${gateway.url()}/x`)).status, 200);
  assert.equal(backend.received.length, 1);
});

for (const [name, body] of [
  ["with a length", "x".repeat(11)],
  ["in chunks", new Blob(["x".repeat(6), "x".repeat(5)]).stream()],
] as const)
  test(`a body ${name} that is larger than buffer.request.maxBytes gets 413 and does not reach the backend`, async (t) => {
    const limit = "policies: { buffer: { request: { maxBytes: 10 } } }";
    const { gateway, backend } = await behindGateway(t, undefined, limit);
    const init = { method: "POST", body, duplex: "half" } as RequestInit;
    const large = await fetch(`${gateway.url()}/x`, init);
    assert.deepEqual([large.status, large.headers.get("x-gateway-error")], [413, "body_too_large"]);
    const small = await fetch(`${gateway.url()}/x`, { method: "POST", body: "x".repeat(10) });
    assert.equal(small.status, 200);
    assert.deepEqual(
      backend.received.map((request) => request.body),
      ["x".repeat(10)],
    );
  });

test("buffer also limits a body that an earlier policy has read", async (t) => {
  const policies = {
    authorization: { rules: ['!request.body.contains("forbidden")'] },
    buffer: { request: { maxBytes: 10 } },
  };
  const { gateway, backend } = await behindGateway(t, undefined, `policies: ${JSON.stringify(policies)}`);
  assert.equal((await fetch(gateway.url(), { method: "POST", body: "x".repeat(11) })).status, 413);
  assert.equal(backend.received.length, 0);
});

test("csrf: a form of another site is rejected before authentication, programs are not", async (t) => {
  const policies = { csrf: {}, apiKey: { keys: [{ key: "k".repeat(20) }] } };
  const { gateway, backend } = await behindGateway(t, undefined, `policies: ${JSON.stringify(policies)}`);
  const post = (headers: Record<string, string>) => fetch(gateway.url(), { method: "POST", headers });
  const forged = await post({ "sec-fetch-site": "cross-site", authorization: `Bearer ${"k".repeat(20)}` });
  assert.deepEqual([forged.status, await forged.text()], [403, "CSRF validation failed"]);
  assert.equal((await post({})).status, 401);
  assert.equal((await post({ authorization: `Bearer ${"k".repeat(20)}` })).status, 200);
  assert.equal(backend.received.length, 1);
});
