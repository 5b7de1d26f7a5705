/**
 * Authentication and authorization of a gateway above a protected MCP route: MCP clients can still log in, and the 401 of
 * the route names its metadata, also for browsers.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { type TestContext, test } from "node:test";
import { loginEndpoints } from "../../src/identity/login/well-known.ts";
import { openRealm } from "../support/identity/identity-provider.ts";
import { ISSUER, KEYS_FILE, kept, token } from "../support/identity/known-issuer.ts";
import { logIn } from "../support/identity/mcp-login.ts";
import {
  DEMO_TARGET,
  initialize,
  type ProtectedGateway,
  startProtectedGateway,
} from "../support/identity/protected-gateway.ts";

const HTPASSWD = `alice:{SHA}${createHash("sha1").update("right").digest("base64")}`;
const JWT = `jwtAuth: { issuer: ${ISSUER}, audiences: [gateway], jwks: ./jwks.json }`;

const ABOVE: Readonly<Record<string, string>> = {
  jwtAuth: JWT,
  apiKey: "apiKey: { keys: [{ key: right-key }] }",
  basicAuth: `basicAuth: { htpasswd: "${HTPASSWD}" }`,
  authorization: `authorization: { rules: ['false'] }`,
  extAuthz: "extAuthz: { host: 127.0.0.1:1 }",
  oidc: "oidc: { issuer: https://issuer.test, clientId: c, redirectUri: https://app.test/callback }",
  "several policies": `${JWT}, authorization: { rules: ['jwt.sub == "nobody"'] }, apiKey: { keys: [{ key: right-key }] }`,
};

const CORS = 'cors: { allowOrigins: ["https://app.test"], exposeHeaders: [Mcp-Session-Id] }';

function start(t: TestContext, above: string, more = ""): Promise<ProtectedGateway> {
  return startProtectedGateway(
    (origin) => `
gateways: { default: { port: 0, policies: { ${above} } } }
routes:
  - name: tools
    matches: [{ path: { exact: /mcp } }]
    policies:
      mcpAuthentication:
        issuer: ${ISSUER}
        audiences: [gateway]
        clientId: app-1
        redirectUris: [loopback]
        jwks: ./jwks.json
        resourceMetadata: { resource: ${origin}/mcp }
      ${more}
    backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
  - { name: other, matches: [{ path: { pathPrefix: / } }], policies: { directResponse: { body: secret } } }
`,
    { files: KEYS_FILE },
  ).then((gateway) => kept(t, gateway));
}

interface Answered {
  readonly status: number;
  readonly body: string;
}

/** The responses of all login endpoints to each method. The provider is down, so some are 5xx. */
async function answers({ base, request }: ProtectedGateway): Promise<ReadonlyMap<string, Answered>> {
  const found = new Map<string, Answered>();
  for (const path of loginEndpoints(`${base}/mcp`, true, true).keys()) {
    for (const method of ["GET", "POST", "OPTIONS", "DELETE"]) {
      const response = await request(path, {
        method,
        ...(method === "POST" ? { headers: { "content-type": "application/json" }, body: '{"redirect_uris":[]}' } : {}),
      });
      found.set(`${method} ${path}`, { status: response.status, body: (await response.text()).replaceAll(base, "") });
    }
  }
  return found;
}

test("no authentication or authorization of a gateway blocks the login of a route below it", async (t) => {
  const open = await answers(await start(t, ""));
  assert.ok(open.size >= 40, String(open.size));
  assert.equal(open.get("GET /.well-known/oauth-protected-resource/mcp")?.status, 200);
  for (const [name, above] of Object.entries(ABOVE)) {
    const gateway = await start(t, above);
    assert.deepEqual(await answers(gateway), open, name);
    for (const path of ["/", "/.well-known/other", "/.well-known/oauth-protected-resource/mcp/x", "/mcp2"]) {
      const other = await gateway.request(path);
      assert.ok(other.status >= 400, `${name} ${path}: ${other.status}`);
      assert.doesNotMatch(await other.text(), /secret/);
    }
  }
});

test("the 401 of the route names its metadata, whatever rejects the request, and browsers can read it", async (t) => {
  for (const [name, above] of [["none", ""], ...Object.entries(ABOVE)] as const) {
    if (name === "authorization" || name === "extAuthz") continue;
    const { base, request } = await start(t, above, CORS);
    const challenge = `resource_metadata="${base}/.well-known/oauth-protected-resource/mcp"`;
    const expired = initialize(token({ exp: 1 }));
    for (const init of [initialize(), expired, { method: "GET" }, { method: "DELETE" }]) {
      const rejected = await request("/mcp", { ...init, headers: { ...init.headers, origin: "https://app.test" } });
      assert.equal(rejected.status, 401, name);
      const header = rejected.headers.get("www-authenticate") ?? "";
      assert.match(header, /^Bearer /, name);
      assert.equal(header.split(challenge).length, 2, `${name}: ${header}`);
      assert.equal(rejected.headers.get("access-control-allow-origin"), "https://app.test", name);
      assert.equal(rejected.headers.get("access-control-expose-headers"), "Mcp-Session-Id, www-authenticate", name);
    }
    const foreign = await request("/mcp", {
      ...initialize(),
      headers: { ...initialize().headers, origin: "https://evil.test" },
    });
    assert.equal(foreign.headers.get("access-control-expose-headers"), null, name);
    const other = await request("/other", { headers: { origin: "https://app.test" } });
    assert.doesNotMatch(other.headers.get("www-authenticate") ?? "", /resource_metadata/, name);
  }
});

test("the challenge of basicAuth follows that of the route", async (t) => {
  const { request } = await start(t, ABOVE.basicAuth ?? "");
  const header = (await request("/mcp", initialize())).headers.get("www-authenticate") ?? "";
  assert.match(header, /^Bearer resource_metadata="[^"]+", Basic realm="gateway"/);
});

for (const [written, exposed] of [
  ["", "www-authenticate"],
  ["exposeHeaders: [WWW-Authenticate]", "WWW-Authenticate"],
  ['exposeHeaders: ["*"]', "*, www-authenticate"],
  ['exposeHeaders: ["*", X-A], allowCredentials: true', "X-A, www-authenticate"],
] as const) {
  test(`cors with { ${written} } exposes ${exposed} on the 401, and nothing more on other responses`, async (t) => {
    const fields = written === "" ? "" : `, ${written}`;
    const { request } = await start(t, "", `cors: { allowOrigins: ["https://app.test"]${fields} }`);
    const from = (init: RequestInit): RequestInit => ({
      ...init,
      headers: { ...init.headers, origin: "https://app.test" },
    });
    const rejected = await request("/mcp", from(initialize()));
    assert.equal(rejected.headers.get("access-control-expose-headers"), exposed);
    const admitted = await request("/mcp", from(initialize(token())));
    assert.equal(admitted.status, 200);
    await admitted.body?.cancel();
    const names = admitted.headers.get("access-control-expose-headers");
    assert.equal(names, written === "" ? null : exposed.replace(", www-authenticate", ""));
  });
}

test("an MCP client logs in below jwtAuth of the gateway", async (t) => {
  const provider = kept(t, await openRealm({ sendsIss: false }));
  const { base } = kept(
    t,
    await startProtectedGateway(
      (origin) => `
gateways: { default: { port: 0, policies: { jwtAuth: { issuer: ${provider.issuer}, audiences: [gateway], jwks: { url: ${provider.issuer}/protocol/openid-connect/certs } }, authorization: { rules: ['jwt.sub != ""'] } } } }
mcp:
  gateway: default
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      issuer: ${provider.issuer}
      audiences: [gateway]
      provider: { idp_realm: {} }
      resourceMetadata: { resource: ${origin}/mcp, scopesSupported: [openid, profile] }
`,
    ),
  );
  const session = await logIn("1.x", `${base}/mcp`);
  assert.ok((await session.client.listTools()).tools.length > 0);
  await session.client.close();
});
