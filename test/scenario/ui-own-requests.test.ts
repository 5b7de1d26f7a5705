/**
 * The UI on a gateway reads that gateway all the time: what it reads must not fill what it shows.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
before(async () => {
  gateway = await startGateway(`
gateways: { default: { port: 0, address: 127.0.0.1 } }
ui: { gateways: default }
routes: [{ name: only, policies: { directResponse: { status: 200, body: ok } }, matches: [{ path: { exact: /a } }] }]
`);
});
after(() => gateway?.close());

const status = async (path: string, headers: Record<string, string> = {}): Promise<number> => {
  const response = await fetch(`${gateway.url()}${path}`, { headers });
  await response.text();
  return response.status;
};

test("what the UI reads is not counted or remembered; other requests and refusals are", async () => {
  for (const name of ["about", "metrics", "healthz/ready", "debug/requests?limit=5", "config_dump"])
    assert.equal(await status(`/ui/api/${name}`), 200, name);
  assert.equal(await status("/a"), 200);
  assert.equal(await status("/ui/api/about", { "sec-fetch-site": "cross-site" }), 403);
  assert.equal(await status("/ui/api/logging"), 404);
  const { requests, inFlight } = (await (await fetch(`${gateway.adminUrl}/debug/requests`)).json()) as {
    requests: { path: string; status: number }[];
    inFlight: number;
  };
  assert.deepEqual(
    requests.map((one) => `${one.status} ${one.path}`),
    ["404 /ui/api/logging", "403 /ui/api/about", "200 /a"],
  );
  assert.equal(inFlight, 0);
  const metrics = await (await fetch(`${gateway.adminUrl}/metrics`)).text();
  assert.doesNotMatch(metrics, /gateway_requests_total\{[^}]*route="ui"[^}]*status="200"/);
  assert.match(metrics, /gateway_requests_total\{[^}]*route="only"[^}]*status="200"[^}]*\} 1\n/);
});
