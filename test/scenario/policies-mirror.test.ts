import assert from "node:assert/strict";
import { test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";

test("requests are copied with their bodies, the answers are the backend's own, and a dead mirror is not felt", async (t) => {
  const backend = await startBackend();
  const mirror = await startBackend();
  t.after(() => Promise.all([backend.close(), mirror.close()]));
  const gateway = await startGateway(`gateways: { default: { port: 0 } }
routes:
  - matches: [{ path: { pathPrefix: /both } }]
    policies:
      requestMirror: [{ host: "${mirror.host}" }, { host: "127.0.0.1:1" }]
      urlRewrite: { path: { prefix: /new } }
    backends: [{ host: "${backend.host}" }]
  - matches: [{ path: { pathPrefix: /half } }]
    policies: { requestMirror: [{ host: "${mirror.host}", percent: 50 }] }
    backends: [{ host: "${backend.host}" }]
`);
  t.after(() => gateway.close());
  const post = await fetch(`${gateway.url()}/both/x?y=1`, { method: "POST", body: "hello" });
  assert.equal(post.status, 200);
  while (mirror.received.length < 1) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(mirror.received[0]?.url, "/new/x?y=1");
  assert.equal(mirror.received[0]?.body, "hello");

  const large = await fetch(`${gateway.url()}/both/large`, { method: "POST", body: "x".repeat(300_000) });
  assert.equal(large.status, 200);
  for (let i = 0; i < 4; i++) await (await fetch(`${gateway.url()}/half`)).text();
  while (mirror.received.length < 3) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(
    mirror.received.map(({ url }) => url),
    ["/new/x?y=1", "/half", "/half"],
  );
  assert.equal(backend.received.length, 6);
});
