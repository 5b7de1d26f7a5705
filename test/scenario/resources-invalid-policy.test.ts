import assert from "node:assert/strict";
import { test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";

const policy = (keys: string) => `---
apiVersion: policy.gateway.internal/v1alpha1
kind: GatewayPolicy
metadata: { name: keys }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: guarded }]
  traffic:
    apiKeyAuthentication: { keys: [${keys}] }
`;

test("a protection that cannot be compiled closes its target, leaves the others, and says so in its status", async (t) => {
  const backend = await startBackend();
  t.after(() => backend.close());
  const standalone = `gateways: { default: { port: 0 } }
routes:
  - { name: guarded, matches: [{ path: { exact: /guarded } }], backends: [{ host: "${backend.host}" }] }
  - { name: open, matches: [{ path: { exact: /open } }], backends: [{ host: "${backend.host}" }] }
`;
  const gateway = await startGateway(standalone + policy('{ key: "same-key-1" }, { key: "same-key-1" }'));
  t.after(() => gateway.close());
  const guarded = await fetch(`${gateway.url()}/guarded`, { headers: { authorization: "Bearer same-key-1" } });
  assert.equal(guarded.status, 500);
  assert.equal(guarded.headers.get("x-gateway-error"), "policy_invalid");
  assert.equal((await fetch(`${gateway.url()}/open`)).status, 200);
  assert.equal(backend.received.length, 1);

  const dump = (await (await fetch(`${gateway.adminUrl}/config_dump`)).json()) as {
    policies: { kind: string; status?: unknown }[];
  };
  const shown = JSON.stringify(dump.policies.find(({ kind }) => kind === "GatewayPolicy")?.status);
  assert.match(shown, /"status":"False"/);
  assert.doesNotMatch(JSON.stringify(dump), /same-key-1/);
});
