/**
 * Two tenants of one gateway write the same public values of a login (issuer, client, address). A session or a sealed
 * state of one tenant is worth nothing at the other's host.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { startBackend } from "../support/backend.ts";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { createSigningKey, keySetOf, signToken } from "../support/identity/tokens.ts";
import { ask, TENANTS, type Tenant, type TenantAnswer, tenantDocuments } from "../support/tenants.ts";

const CLIENT = "shared-client";
const KEYS = { a: createSigningKey("ES256", "k1"), b: createSigningKey("ES256", "k1") };

const PAGE = { accept: "text/html" };
const DEMO = (): object => ({ ai: { provider: { demo: {} } } });

function cookieOf({ headers }: TenantAnswer, name: RegExp): string {
  const line = headers["set-cookie"]?.find((one) => name.test(one) && !/max-age=0/i.test(one)) ?? "";
  return line.slice(0, line.indexOf(";"));
}

/** Signs in at the tenant's own host. Resolves with the session cookie. */
async function signIn(gateway: TestGateway, tenant: Tenant, nonces: Record<Tenant, string>): Promise<string> {
  const begun = await ask(gateway, tenant, "/", PAGE);
  assert.equal(begun.status, 302, begun.body);
  const { searchParams } = new URL(begun.headers.location ?? "");
  nonces[tenant] = searchParams.get("nonce") ?? "";
  const state = searchParams.get("state") ?? "";
  const finished = await ask(gateway, tenant, `/cb?code=c&state=${state}`, {
    cookie: cookieOf(begun, /gateway_signin_/),
  });
  assert.equal(finished.status, 302, finished.body);
  return cookieOf(finished, /gateway_session_/);
}

async function twoOidcTenants(t: TestContext): Promise<{ gateway: TestGateway; nonces: Record<Tenant, string> }> {
  const nonces: Record<Tenant, string> = { a: "", b: "" };
  const provider = await startBackend((incoming, response) => {
    const tenant: Tenant = incoming.url === "/b/token" ? "b" : "a";
    const exp = Math.floor(Date.now() / 1000) + 600;
    const claims = { iss: issuer, aud: CLIENT, sub: `user-of-${tenant}`, nonce: nonces[tenant], exp };
    const token = signToken({ key: KEYS[tenant], claims });
    response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ id_token: token, token_type: "Bearer", access_token: "x" }));
  });
  t.after(() => provider.close());
  const issuer = `http://${provider.host}`;
  const policy = (tenant: Tenant): object => ({
    traffic: {
      oidc: {
        issuer,
        clientId: CLIENT,
        redirectUri: "http://a.test/cb",
        authorizationEndpoint: `${issuer}/authorize`,
        tokenEndpoint: `${issuer}/${tenant}/token`,
        jwks: keySetOf(KEYS[tenant]),
      },
      directResponse: { status: 200, body: `page of ${tenant}` },
    },
  });
  const gateway = await startGateway(tenantDocuments(policy, DEMO));
  t.after(() => gateway.close());
  return { gateway, nonces };
}

test("a session that one tenant opens with its own keys is none for another tenant with the same client", async (t) => {
  const { gateway, nonces } = await twoOidcTenants(t);
  const sessions = { a: await signIn(gateway, "a", nonces), b: await signIn(gateway, "b", nonces) };
  const [nameOfA, nameOfB] = TENANTS.map((tenant) => sessions[tenant].split("=")[0]);
  assert.notEqual(nameOfA, nameOfB);
  for (const [own, foreign] of [
    ["a", "b"],
    ["b", "a"],
  ] as const) {
    assert.equal((await ask(gateway, own, "/", { ...PAGE, cookie: sessions[own] })).body, `page of ${own}`);
    const [ownName] = sessions[own].split("=");
    const [, value] = sessions[foreign].split("=");
    for (const cookie of [sessions[foreign], `${ownName}=${value}`]) {
      const answer = await ask(gateway, own, "/", { ...PAGE, cookie });
      assert.equal(answer.status, 302, `${own} with ${cookie}: ${answer.body}`);
    }
  }
});

test("a sign-in that one tenant began cannot be finished at another", async (t) => {
  const { gateway, nonces } = await twoOidcTenants(t);
  const begun = await ask(gateway, "b", "/", PAGE);
  const { searchParams } = new URL(begun.headers.location ?? "");
  nonces.a = searchParams.get("nonce") ?? "";
  const name = cookieOf(await ask(gateway, "a", "/", PAGE), /gateway_signin_/).replace(/_\d=.*/, "");
  const state = searchParams.get("state") ?? "";
  const [, value] = cookieOf(begun, /gateway_signin_/).split("=");
  for (const cookie of [cookieOf(begun, /gateway_signin_/), `${name}_${state[0]}=${value}`]) {
    const answer = await ask(gateway, "a", `/cb?code=c&state=${state}`, { cookie });
    assert.equal(answer.status, 401, answer.body);
  }
});

const AUTHORIZE = "/.well-known/oauth-authorization-server/mcp/authorize";
const CALLBACK = "/.well-known/oauth-authorization-server/mcp/callback";

async function sealedState(gateway: TestGateway, tenant: Tenant, address: string): Promise<string> {
  const query = new URLSearchParams({
    response_type: "code",
    client_id: CLIENT,
    redirect_uri: address,
    state: "s1",
    code_challenge: "x".repeat(43),
    code_challenge_method: "S256",
  });
  const answer = await ask(gateway, tenant, `${AUTHORIZE}?${query}`);
  assert.equal(answer.status, 302, answer.body);
  return new URL(answer.headers.location ?? "").searchParams.get("state") ?? "";
}

test("a login state that one tenant seals is unknown to another tenant's callback, and addresses are checked again", async (t) => {
  const provider = await startBackend((_incoming, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(
      JSON.stringify({
        issuer,
        authorization_endpoint: `${issuer}/authorize`,
        token_endpoint: `${issuer}/token`,
        jwks_uri: `${issuer}/keys`,
      }),
    );
  });
  t.after(() => provider.close());
  const issuer = `http://${provider.host}`;
  const policy = (...redirectUris: string[]): object => ({
    backend: {
      mcp: {
        authentication: {
          issuer,
          audiences: ["x"],
          clientId: CLIENT,
          clientSecret: "secret-secret",
          redirectUris,
          jwks: keySetOf(KEYS.a),
          resourceMetadata: { resource: "http://a.test/mcp" },
        },
      },
    },
  });
  const [own, evil] = ["https://client.test/cb", "https://evil.test/cb"];
  const documents = (ofA: string): string => tenantDocuments((tenant) => policy(tenant === "a" ? ofA : evil), DEMO);
  const gateway = await startGateway(documents(own));
  t.after(() => gateway.close());
  const callback = (state: string): Promise<TenantAnswer> =>
    ask(gateway, "a", `${CALLBACK}?code=victim&state=${state}`);

  const foreign = await callback(await sealedState(gateway, "b", evil));
  assert.equal(foreign.status, 400);
  assert.match(foreign.body, /the state is not known/);
  assert.equal(foreign.headers.location, undefined);

  const state = await sealedState(gateway, "a", own);
  const ours = await callback(state);
  assert.equal(ours.status, 302, ours.body);
  assert.match(ours.headers.location ?? "", /^https:\/\/client\.test\/cb\?code=victim&state=s1/);

  assert.equal(await gateway.reload(documents("https://other.test/cb")), "loaded");
  const removed = await callback(state);
  assert.equal(removed.status, 400);
  assert.match(removed.body, /redirect_uri is not among the addresses/);
});
