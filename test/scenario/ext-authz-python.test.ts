/** `extAuthz` with a service that uses the gRPC implementation of another language. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { skipWithoutGrpc, startPython } from "../support/python-grpc.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

test("a service in Python denies with its own response, and sets headers on allowed requests", {
  skip: skipWithoutGrpc,
}, async (t) => {
  const port = await startPython(t, "test/support/ext-authz/checker.py");
  const backend = await backendFor(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - policies: { extAuthz: { host: "127.0.0.1:${port}", headers: [x-token], accept: [x-user] } }
    backends: [{ host: "${backend.host}" }]
`,
  );
  const denied = await fetch(`${gateway.url()}/a`, { headers: { "x-token": "wrong" } });
  assert.deepEqual([denied.status, denied.headers.get("x-reason")], [402, "token"]);
  assert.equal(await denied.text(), "pay first");
  assert.equal(backend.received.length, 0);
  const allowed = await fetch(`${gateway.url()}/a?b=1`, { headers: { "x-token": "right", "x-user": "forged" } });
  await allowed.arrayBuffer();
  assert.equal(allowed.status, 200);
  assert.equal(backend.received[0]?.headers["x-user"], "GET /a?b=1");
});
