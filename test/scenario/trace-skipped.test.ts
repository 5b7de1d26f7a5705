/**
 * A policy that stands on a route and has nothing to do with a request is in its trace too, with the reason.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { messagesOf, traceOf } from "../support/trace.ts";

const KEY = "k3y-of-ann";
let gateway: TestGateway;
before(async () => {
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes:
  - name: open
    policies:
      cors: { allowOrigins: ["http://app.test"] }
      apiKey: { mode: optional, keys: [{ key: ${KEY}, metadata: { user_id: ann } }] }
      basicAuth: { mode: optional, htpasswd: "ann:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=" }
      directResponse: { status: 200, body: ok }
`);
});
after(() => gateway?.close());

async function policiesOf(headers: Record<string, string>): Promise<string[]> {
  const events = await traceOf(gateway, () => fetch(gateway.url(), { headers }).then((response) => response.text()));
  return messagesOf(events, "policy")
    .filter(({ moment }) => moment === "request")
    .map(({ kind, result, details }) => `${kind} ${result}${details === undefined ? "" : `: ${details}`}`);
}

test("policies that do not apply are skipped, and say why", async () => {
  assert.deepEqual(await policiesOf({}), [
    "cors skipped: the request has no Origin header",
    "basicAuth skipped: no user name and password were sent; none are required",
    "apiKey skipped: no API key was sent; none is required",
    "directResponse answered",
  ]);
});

test("the same policies are applied to a request that concerns them", async () => {
  assert.deepEqual(await policiesOf({ origin: "http://app.test", "x-api-key": KEY }), [
    "cors applied",
    "basicAuth skipped: no user name and password were sent; none are required",
    "apiKey applied",
    "directResponse answered",
  ]);
});
