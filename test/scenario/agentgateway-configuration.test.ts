/**
 * A gateway that is started with a configuration in agentgateway's format: it serves, reloads, and keeps serving if the
 * next configuration cannot be loaded as it is.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway } from "../support/gateway.ts";

const configuration = (host: string, more = "") => `
# yaml-language-server: $schema=https://agentgateway.dev/schema/config
binds:
  - port: 0
    listeners:
      - routes:
          - name: api
            matches: [{ path: { pathPrefix: /api } }]
            backends: [{ host: "${host}" }]
            policies:
              localRateLimit: [{ maxTokens: 2, tokensPerFill: 2, fillInterval: 60s }]
              ${more}
`;

test("serves, reloads, and rejects a configuration that would lose a setting", async (t) => {
  const backend = await startBackend((_req, res) => res.end("ok"));
  t.after(() => backend.close());
  const gateway = await startGateway(configuration(backend.host));
  t.after(() => gateway.close());
  await gateway.logged("binds: is called `gateways` and `routes` here");
  const get = async () => (await fetch(`${gateway.url()}/api`)).status;
  assert.deepEqual([await get(), await get(), await get()], [200, 200, 429]);

  assert.equal(await gateway.reload(configuration(backend.host, "inventedPolicy: {}")), "refused");
  await gateway.logged("this configuration of agentgateway cannot be loaded");
  assert.equal(await get(), 429, "the previous configuration still serves");

  const denied = 'authorization: { rules: [{ deny: "true" }] }';
  assert.equal(await gateway.reload(configuration(backend.host, denied)), "loaded");
  assert.equal(await get(), 403);
});
