/**
 * Ways around a guarded route (rows L5 and V14 of the threat table): no spelling of its path reaches the backend
 * without the credential, also where an open route beside it takes everything else.
 */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { rawRequest, requestText } from "../support/raw-client.ts";

let backend: TestBackend;
let gateway: TestGateway;

before(async () => {
  backend = await startBackend();
  gateway = await startGateway(`
gateways: { default: { port: 0 } }
routes:
  - name: guarded
    matches: [{ path: { pathPrefix: /admin } }]
    policies: { apiKey: { keys: [{ key: open-sesame, metadata: { user_id: alice } }] } }
    backends: [{ host: ${backend.host} }]
  - name: open
    backends: [{ host: ${backend.host} }]
`);
});
after(async () => {
  await gateway.close();
  await backend.close();
});

const credential = "Authorization: Bearer open-sesame";

const around: [target: string, status: number][] = [
  ["/admin", 401],
  ["/admin/users", 401],
  ["//admin/users", 401],
  ["/admin//users", 401],
  ["/%61dmin/users", 401],
  ["/admin%2fusers", 400],
  ["/admin%2Fusers", 400],
  ["/admin%5cusers", 400],
  ["/%2fadmin/users", 400],
  ["/x%2f..%2fadmin", 400],
  ["/x/../admin", 400],
  ["/x/%2e%2e/admin", 400],
  ["/x/..;/admin", 400],
  ["/admin\\\\users", 400],
  ["http://gateway.test/admin/users", 401],
  ["http://gateway.test//admin", 401],
];
for (const [target, status] of around) {
  test(`${target} does not lead to the guarded backend: ${status} [L5] [V14]`, async () => {
    const before = backend.received.length;
    assert.equal((await rawRequest(gateway.port(), requestText(`GET ${target} HTTP/1.1`))).status, status);
    assert.equal(backend.received.length, before);
  });
}

test("with the credential the guarded route answers, but not to an ambiguous path", async () => {
  assert.equal((await rawRequest(gateway.port(), requestText("GET /admin/users HTTP/1.1", [credential]))).status, 200);
  assert.equal(
    (await rawRequest(gateway.port(), requestText("GET /admin%2fusers HTTP/1.1", [credential]))).status,
    400,
  );
});

test("encoded separators elsewhere are the open route's business", async () => {
  assert.equal((await rawRequest(gateway.port(), requestText("GET /files/a%2fb HTTP/1.1"))).status, 200);
  assert.equal(backend.received.at(-1)?.url, "/files/a%2Fb");
});

test("a preflight to a guarded gateway is answered, and its refusals carry the permission", async () => {
  const guarded = await startGateway(`
gateways:
  default:
    port: 0
    policies:
      cors: { allowOrigins: ["https://app.test"] }
      apiKey: { keys: [{ key: open-sesame, metadata: { user_id: alice } }] }
routes: [{ backends: [{ host: ${backend.host} }] }]
`);
  try {
    const origin = { origin: "https://app.test" };
    const preflight = await fetch(guarded.url(), {
      method: "OPTIONS",
      headers: { ...origin, "access-control-request-method": "GET" },
    });
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers.get("access-control-allow-origin"), "https://app.test");
    const refused = await fetch(guarded.url(), { headers: origin });
    assert.equal(refused.status, 401);
    assert.equal(refused.headers.get("access-control-allow-origin"), "https://app.test");
    const allowed = await fetch(guarded.url(), {
      headers: { ...origin, authorization: credential.slice("Authorization: ".length) },
    });
    assert.equal(allowed.status, 200);
    assert.equal(allowed.headers.get("access-control-allow-origin"), "https://app.test");
  } finally {
    await guarded.close();
  }
});
