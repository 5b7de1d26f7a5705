/**
 * Tokens for backends and logins with a real Keycloak: token exchange (RFC 8693) for HTTP backends and MCP servers,
 * client credentials, the failures of both, and the browser login.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { after, before, type TestContext, test } from "node:test";
import { startBackend, type TestBackend } from "../support/backend.ts";
import { openBrowser } from "../support/identity/browser.ts";
import { DEMO_TARGET, initialize, startProtectedGateway } from "../support/identity/protected-gateway.ts";
import {
  type RealmServer,
  requestToken,
  skipWithoutRealmServer,
  startRealmServer,
} from "../support/identity/realm-server.ts";
import { gatewayFor } from "../support/scenario.ts";

/** Characters that the form encoding of RFC 6749 changes. */
const SECRET = "s e+c/r%et:ü";
const ALICE = { username: "alice", password: "alice-password" };

const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const PUBLIC_JWK = { ...publicKey.export({ format: "jwk" }), kid: "signing-key", use: "sig", alg: "ES256" };

const audience = (client: string) => ({
  name: `audience-${client}`,
  protocol: "openid-connect",
  protocolMapper: "oidc-audience-mapper",
  config: { "included.client.audience": client, "access.token.claim": "true" },
});
const app = { publicClient: true, directAccessGrantsEnabled: true };
const gatewayClient = { secret: SECRET, serviceAccountsEnabled: true, protocolMappers: [audience("shop")] };
const REALM = {
  realm: "shop",
  enabled: true,
  clients: [
    { ...app, clientId: "app", protocolMappers: [audience("gateway"), audience("no-exchange"), audience("signing")] },
    { ...app, clientId: "app-of-others" },
    { ...gatewayClient, clientId: "gateway", attributes: { "standard.token.exchange.enabled": "true" } },
    { ...gatewayClient, clientId: "no-exchange" },
    {
      clientId: "signing",
      clientAuthenticatorType: "client-jwt",
      protocolMappers: [audience("shop")],
      attributes: {
        "standard.token.exchange.enabled": "true",
        "use.jwks.string": "true",
        "jwks.string": JSON.stringify({ keys: [PUBLIC_JWK] }),
        "token.endpoint.auth.signing.alg": "ES256",
      },
    },
    { clientId: "shop", bearerOnly: true },
    { clientId: "pages", secret: SECRET, redirectUris: ["*"] },
  ],
  users: [
    {
      username: ALICE.username,
      enabled: true,
      email: "alice@example.com",
      emailVerified: true,
      firstName: "Alice",
      lastName: "Example",
      credentials: [{ type: "password", value: ALICE.password }],
    },
  ],
};

const options = { skip: skipWithoutRealmServer };
let server: RealmServer;
let issuer: string;
let backend: TestBackend;

before(async () => {
  if (skipWithoutRealmServer !== false) return;
  server = await startRealmServer();
  issuer = `${server.url}/realms/shop`;
  await server.createRealm(REALM);
  backend = await startBackend();
});
after(async () => {
  await backend?.close();
  await server?.close();
});

async function aliceToken(client = "app"): Promise<string> {
  const form = { grant_type: "password", client_id: client, scope: "openid", ...ALICE };
  return (await requestToken(issuer, form)).access_token;
}

function claims(token: string): Readonly<Record<string, unknown>> {
  return JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString()) as Record<string, unknown>;
}

async function exchanging(t: TestContext, oauth: Readonly<Record<string, unknown>> = {}, policies = "") {
  const fields = {
    tokenUrl: `${issuer}/protocol/openid-connect/token`,
    clientId: "gateway",
    clientSecret: SECRET,
    audiences: ["shop"],
    ...oauth,
  };
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - policies: { backendAuth: { oauth: ${JSON.stringify(fields)} }${policies} }
    backends: [{ host: "${backend.host}" }]
`,
  );
  const send = async (token?: string): Promise<{ status: number; sent: string | undefined }> => {
    const before = backend.received.length;
    const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const response = await fetch(gateway.url(), { headers });
    await response.arrayBuffer();
    const sent = backend.received[before]?.headers.authorization?.replace(/^Bearer /, "");
    return { status: response.status, sent };
  };
  return { gateway, send };
}

/** A gateway that verifies tokens for the audience `shop`, as the backend would. */
async function shopAccepts(t: TestContext, token: string): Promise<boolean> {
  const shop = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes:
  - policies: { jwtAuth: { issuer: "${issuer}", audiences: [shop] }, directResponse: { status: 200, body: ok } }
`,
  );
  const response = await fetch(shop.url(), { headers: { authorization: `Bearer ${token}` } });
  await response.arrayBuffer();
  return response.status === 200;
}

for (const clientAuth of ["basic", "post"]) {
  test(`the client's token is exchanged for one that the backend accepts (${clientAuth})`, options, async (t) => {
    const policies = `, jwtAuth: { issuer: "${issuer}", audiences: [gateway] }`;
    const { send } = await exchanging(t, { clientAuth }, policies);
    const token = await aliceToken();
    const { status, sent = "" } = await send(token);
    assert.equal(status, 200);
    const { aud, azp, preferred_username: user } = claims(sent);
    assert.deepEqual({ aud, azp, user }, { aud: "shop", azp: "gateway", user: "alice" });
    assert.equal(await shopAccepts(t, sent), true);
    assert.equal(await shopAccepts(t, token), false);
    assert.equal((await send(token)).sent, sent, "the token is kept");
    assert.equal((await send()).status, 401);
  });
}

test("the gateway's client authenticates with a signed JWT", options, async (t) => {
  const client = { clientId: "signing", clientSecret: undefined, clientAuth: "privateKeyJwt" };
  const clientKey = privateKey.export({ type: "pkcs8", format: "pem" });
  const { send } = await exchanging(t, { ...client, clientKey, clientKeyId: "signing-key" });
  const { status, sent = "" } = await send(await aliceToken());
  assert.deepEqual([status, claims(sent).azp], [200, "signing"]);
  const other = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ type: "pkcs8", format: "pem" });
  const wrong = await exchanging(t, { ...client, clientKey: other, clientKeyId: "signing-key" });
  assert.equal((await wrong.send(await aliceToken())).status, 503);
});

test("client credentials give the gateway a token of its own", options, async (t) => {
  const { send } = await exchanging(t, { grant: "clientCredentials", audiences: undefined });
  const { status, sent = "" } = await send();
  assert.deepEqual([status, claims(sent).preferred_username], [200, "service-account-gateway"]);
  assert.equal(await shopAccepts(t, sent), true);
});

test(
  "tokens that the realm does not exchange get 401, and the log explains what the realm needs",
  options,
  async (t) => {
    const { gateway, send } = await exchanging(t);
    assert.deepEqual(await send(await aliceToken("app-of-others")), { status: 401, sent: undefined });
    await gateway.logged("the client's token is not for the gateway");
    assert.equal((await send("garbage")).status, 401);
    const other = await exchanging(t, { audiences: ["pages"] });
    assert.equal((await other.send(await aliceToken())).status, 401);
    await other.gateway.logged("add an audience mapper with the backend's client");
    const loggedOut = await aliceToken();
    const users = (await server.admin("GET", "/shop/users?username=alice")) as { id: string }[];
    await server.admin("POST", `/shop/users/${users[0]?.id}/logout`);
    assert.equal((await send(loggedOut)).status, 401);
  },
);

for (const [what, oauth, reason] of [
  ["an unknown audience", { audiences: ["unknown"] }, "the realm has no client with this audience"],
  ["a client without token exchange", { clientId: "no-exchange" }, "Standard token exchange"],
  ["an unsupported token type", { subjectTokenType: "id_token" }, "subjectTokenType: access_token"],
  ["an unknown scope", { scopes: ["unknown"] }, "invalid_scope"],
  ["a wrong secret", { clientSecret: "wrong" }, "unauthorized_client"],
  ["an unknown grant", { grant: "jwtBearer" }, "unsupported_grant_type"],
] as const) {
  test(`${what} is a fault of the configuration: 503, with the fix in the log`, options, async (t) => {
    const { gateway, send } = await exchanging(t, oauth);
    assert.deepEqual(await send(await aliceToken()), { status: 503, sent: undefined });
    const line = await gateway.logged("cannot get a token for the backend");
    assert.ok(line.includes(reason), line);
    assert.ok(!gateway.log().some((text) => text.includes(SECRET)));
  });
}

test("an MCP server gets the exchanged token of the caller", options, async (t) => {
  const shop = await startProtectedGateway(
    () => `mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies: { jwtAuth: { issuer: "${issuer}", audiences: [shop] } }
`,
  );
  t.after(() => shop.close());
  const exchange = {
    tokenUrl: `${issuer}/protocol/openid-connect/token`,
    clientId: "gateway",
    clientSecret: SECRET,
    audience: "shop",
  };
  const front = await startProtectedGateway(
    (base) => `mcp:
  port: 0
  targets:
    - { name: shop, mcp: { url: "${shop.base}/mcp", identity: { exchange: ${JSON.stringify(exchange)} } } }
  policies:
    mcpAuthentication:
      issuer: "${issuer}"
      audiences: [gateway]
      provider: { idp_realm: {} }
      resourceMetadata: { resource: "${base}/mcp" }
`,
  );
  t.after(() => front.close());
  const refused = await front.request("/mcp", initialize());
  assert.equal(refused.status, 401);
  assert.match(refused.headers.get("www-authenticate") ?? "", /resource_metadata=/);
  const accepted = await front.request("/mcp", initialize(await aliceToken()));
  const text = await accepted.text();
  assert.equal(accepted.status, 200, text);
  assert.match(text, /"serverInfo"/, `${text}\n${front.gateway.log().join("\n")}`);
});

test("a browser logs in at the realm and gets the page", options, async (t) => {
  const pages = await startProtectedGateway(
    (base) => `gateways: { default: { port: 0 } }
routes:
  - policies:
      oidc: { issuer: "${issuer}", clientId: pages, clientSecret: "${SECRET}", redirectUri: "${base}/callback" }
      authorization: { rules: ['jwt.preferred_username == "alice"'] }
      directResponse: { status: 200, body: inside }
`,
  );
  t.after(() => pages.close());
  const browser = openBrowser(ALICE);
  const back = await browser.fetch(await browser.visit(new URL(`${pages.base}/page`), `${pages.base}/callback`));
  assert.deepEqual([back.status, back.headers.get("location")], [302, `${pages.base}/page`]);
  const page = await browser.fetch(`${pages.base}/page`);
  assert.deepEqual([page.status, await page.text()], [200, "inside"]);
});
