/**
 * Bodies that a policy reads: only after the policies before it let the request pass, only as much as it may be, from
 * clients that wait to be asked, and not for ever from slow ones (rows L10 and D1 of the threat table).
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { createSigningKey, keySetOf } from "../support/identity/tokens.ts";
import { openRawClient } from "../support/raw-client.ts";
import { gatewayFor } from "../support/scenario.ts";

const GUARDED = `
gateways: { default: { port: 0 } }
routes:
  - policies:
      apiKey: { keys: [{ key: open-sesame }] }
      authorization: { rules: ['request.body.contains("please")'] }
      rateLimit: { local: [{ requests: 1, unit: Hours }] }
      transformations: { request: { set: { x-size: "size(request.body)" } } }
      directResponse: { body: thanks }
`;

const TENANT = `
gateways: { default: { port: 0 } }
routes:
  - policies:
      mcpAuthentication:
        issuer: http://127.0.0.1:1/tenant/v2.0
        audiences: [app]
        provider: { idp_tenant: {} }
        clientId: app
        jwks: ${JSON.stringify(keySetOf(createSigningKey("ES256", "k1")))}
        resourceMetadata: { resource: "http://127.0.0.1/mcp" }
`;
const REGISTRATION = "/.well-known/oauth-authorization-server/client-registration";

test("without a credential nothing of the body is asked for", async (t) => {
  const gateway = await gatewayFor(t, GUARDED);
  const client = openRawClient(gateway.port());
  client.write("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n");
  assert.deepEqual((await client.ended()).statuses, [401]);
  const large = await fetch(gateway.url(), { method: "POST", body: "x".repeat(3_000_000) });
  assert.equal(large.status, 401, "not 413: who is not known learns nothing about limits");
});

test("with a credential the rule reads the body, and a limit that is used up comes before the next one [S8-12]", async (t) => {
  const gateway = await gatewayFor(t, GUARDED);
  const post = (body: string): Promise<Response> =>
    fetch(gateway.url(), { method: "POST", body, headers: { "x-api-key": "open-sesame" } });
  assert.equal((await post("no")).status, 403);
  assert.equal((await post("x".repeat(3_000_000))).status, 413);
  assert.equal(await (await post("please")).text(), "thanks");
  assert.equal((await post("please")).status, 429);
});

test("a client that waits for 100 Continue is asked for its registration at once", async (t) => {
  const gateway = await gatewayFor(t, TENANT);
  const body = JSON.stringify({ redirect_uris: ["http://localhost:1/cb"] });
  const client = openRawClient(gateway.port());
  client.write(
    `POST ${REGISTRATION} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`,
  );
  await client.until("HTTP/1.1 100 Continue\r\n\r\n");
  client.write(body);
  assert.match((await client.ended()).text, /HTTP\/1\.1 201 Created/);
});

test("a registration that stops in the middle is told after 60 s", async (t) => {
  const clock = fakeClock();
  const gateway = await gatewayFor(t, TENANT, { clock });
  const client = openRawClient(gateway.port());
  client.write(
    `POST ${REGISTRATION} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
  );
  await eventually("the request is under way", async () => /"requests":\s*1/.test(await tasksOf(gateway.adminUrl)));
  await clock.advance(70_000);
  await client.until("408");
  await clock.advance(2_000);
  assert.deepEqual((await client.ended()).errors, ["request_timeout"]);
});

test("a client that leaves in the middle of its registration is no defect of ours", async (t) => {
  const gateway = await gatewayFor(t, TENANT);
  const client = openRawClient(gateway.port());
  client.write(
    `POST ${REGISTRATION} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
  );
  await eventually("the request is under way", async () => /"requests":\s*1/.test(await tasksOf(gateway.adminUrl)));
  client.reset();
  await gateway.logged("end=aborted");
  assert.ok(!gateway.log().some((line) => line.includes("defect")), gateway.log().join("\n"));
});

async function tasksOf(adminUrl: string): Promise<string> {
  return (await fetch(`${adminUrl}/debug/tasks`)).text();
}
