/**
 * Spec 2.2, 2.4, 2.5, 4.1, 4.3, 5: real MCP clients of both generations log in through the gateway: discovery,
 * registration, authorize with PKCE, token, `initialize`, `tools/call`, refresh; with both kinds of provider.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import {
  type IdentityProviderStandIn,
  openRealm,
  openTenant,
  TRUSTED_HOSTS_REFUSAL,
} from "../support/identity/identity-provider.ts";
import { type Generation, type LoggedIn, logIn, REDIRECT_URI } from "../support/identity/mcp-login.ts";
import { DEMO_TARGET, type ProtectedGateway, startProtectedGateway } from "../support/identity/protected-gateway.ts";

/** Closed when the test ends, however it ends. */
function kept<Thing extends { close(): Promise<void> }>(context: TestContext, thing: Thing): Thing {
  context.after(() => thing.close());
  return thing;
}

function protectedBy(
  issuer: string,
  lines: readonly string[],
  metadata: readonly string[] = [],
  knownAt: (base: string) => void = () => undefined,
): Promise<ProtectedGateway> {
  return startProtectedGateway((base) => {
    knownAt(base);
    return `
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      mode: strict
      issuer: ${issuer}
      ${lines.join("\n      ")}
      resourceMetadata:
        resource: ${base}/mcp
        scopesSupported: [openid, tools, offline_access]
        ${metadata.join("\n        ")}
    authorization:
      rules: ['"admin" in (has(jwt.roles) ? jwt.roles : jwt.realm_access.roles)']
`;
  });
}

const REALM = ["audiences: [gateway]", "provider: { idp_realm: {} }"];
const TENANT = ["audiences: [api://app-1, app-1]", "provider: { idp_tenant: {} }", "clientId: app-1"];

async function callEcho({ client }: LoggedIn): Promise<void> {
  const { tools } = await client.listTools();
  assert.ok(tools.some(({ name }) => name === "echo"));
  const result = await client.callTool({ name: "echo", arguments: { message: "hello" } });
  assert.match(JSON.stringify(result.content), /hello/);
}

/** The access token is forgotten by the provider's clock: the client must refresh by itself and go on. */
async function refresh(session: LoggedIn): Promise<void> {
  const before = session.store.tokens;
  assert.ok(before?.refresh_token, "a refresh token was issued");
  session.store.tokens = { ...before, access_token: "expired" };
  await callEcho(session);
  assert.notEqual(session.store.tokens?.access_token, "expired");
  assert.notEqual(session.store.tokens?.access_token, before.access_token);
}

const generations: Generation[] = ["1.x", "2.x"];

for (const generation of generations) {
  test(`client ${generation} logs in to a realm that leaves iss out of its answer [S1-3] [S4.1-3] [S1-9] [S5-14]`, async (context) => {
    const provider = kept(context, await openRealm({ sendsIss: false }));
    const { base } = kept(context, await protectedBy(provider.issuer, REALM));
    const session = await logIn(generation, `${base}/mcp`);
    assert.ok(session.store.authorizationUrl?.href.startsWith(`${provider.issuer}/protocol/openid-connect/auth`));
    assert.ok(session.store.client?.client_id, "registered through the gateway");
    await callEcho(session);
    await refresh(session);
    await session.client.close();
  });

  test(`client ${generation} logs in to a realm that sends iss, when the metadata names the realm itself`, async (context) => {
    const provider = kept(context, await openRealm({ sendsIss: true }));
    const { base } = kept(
      context,
      await protectedBy(provider.issuer, REALM, [`authorizationServers: [${provider.issuer}]`]),
    );
    const session = await logIn(generation, `${base}/mcp`);
    assert.equal(session.callback.get("iss"), provider.issuer);
    await callEcho(session);
    await refresh(session);
    await session.client.close();
  });

  for (const clientSecret of [undefined, "secret-of-app-1"]) {
    const kind = clientSecret === undefined ? "public" : "confidential";
    test(`client ${generation} logs in to a tenant with a ${kind} app registration [S1-3] [S4.1-7] [S5-12]`, async (context) => {
      const options = {
        clientId: "app-1",
        redirectUri: REDIRECT_URI,
        ...(clientSecret === undefined ? {} : { clientSecret }),
      };
      const provider = kept(context, await openTenant(options));
      const secretLine = clientSecret === undefined ? [] : [`clientSecret: ${clientSecret}`];
      const { base, gateway } = kept(context, await protectedBy(provider.issuer, [...TENANT, ...secretLine]));
      const session = await logIn(generation, `${base}/mcp`);
      assert.equal(session.store.client?.client_id, "app-1");
      assert.ok(session.store.authorizationUrl?.searchParams.has("resource"), "the client did send resource");
      await callEcho(session);
      await refresh(session);
      assert.ok(provider.tokenBodies.length >= 2);
      for (const body of provider.tokenBodies) {
        const form = new URLSearchParams(body);
        assert.equal(form.has("resource"), false);
        assert.equal(form.get("client_secret"), clientSecret ?? null);
      }
      assert.ok(!JSON.stringify(session.store).includes("secret-of-app-1"), "the client never sees the secret");
      assert.ok(!gateway.log().join("\n").includes("secret-of-app-1"));
      await session.client.close();
    });
  }
}

for (const generation of generations) {
  test(`client ${generation} logs in to a realm that sends iss: the gateway has it left out for the client`, async (context) => {
    const provider = kept(context, await openRealm({ sendsIss: true, allowsExclusion: true }));
    const { base } = kept(context, await protectedBy(provider.issuer, REALM));
    const session = await logIn(generation, `${base}/mcp`);
    assert.equal(session.callback.get("iss"), null);
    await callEcho(session);
    await refresh(session);
    await session.client.close();
  });
}

for (const generation of generations) {
  test(`client ${generation} logs in as the operator's client at a provider that sends iss: the gateway takes the callback`, async (context) => {
    const client = { client_id: "own-1", redirect_uris: ["http://127.0.0.1:1/unused"] };
    const provider = kept(context, await openRealm({ sendsIss: true, client }));
    const lines = ["audiences: [gateway]", "clientId: own-1", "redirectUris: [loopback]"];
    const { base } = kept(
      context,
      await protectedBy(provider.issuer, lines, [], (at) => {
        client.redirect_uris.push(`${at}/.well-known/oauth-authorization-server/mcp/callback`);
        provider.rotateKeys();
      }),
    );
    const session = await logIn(generation, `${base}/mcp`);
    assert.equal(session.store.client?.client_id, "own-1");
    assert.equal(session.callback.get("iss"), `${base}/mcp`);
    assert.equal(session.callback.get("state"), "state-of-the-test");
    await callEcho(session);
    await refresh(session);
    await session.client.close();
  });
}

test("client 1.x logs in to a realm that sends iss and will not leave it out", async (context) => {
  const provider = kept(context, await openRealm({ sendsIss: true }));
  const { base } = kept(context, await protectedBy(provider.issuer, REALM));
  const session = await logIn("1.x", `${base}/mcp`);
  assert.equal(session.callback.get("iss"), provider.issuer);
  await callEcho(session);
  await session.client.close();
});

test("client 2.x refuses such a realm, and the log says what to do", async (context) => {
  const provider = kept(context, await openRealm({ sendsIss: true }));
  const { base, gateway } = kept(context, await protectedBy(provider.issuer, REALM));
  await assert.rejects(logIn("2.x", `${base}/mcp`), /iss/i);
  assert.match(gateway.log().join("\n"), /client registration could not be completed.*Exclude Issuer/);
});

for (const generation of generations) {
  test(`client ${generation} logs in to a plain provider`, async (context) => {
    // The same library without an adapter: registration and endpoints come from its own metadata.
    const provider = kept(context, await openRealm({ sendsIss: false }));
    const { base } = kept(context, await protectedBy(provider.issuer, ["audiences: [gateway]"]));
    const session = await logIn(generation, `${base}/mcp`);
    await callEcho(session);
    await session.client.close();
  });
}

async function failedLogin(
  context: TestContext,
  provider: IdentityProviderStandIn,
): Promise<{ log: string; error: Error }> {
  const { base, gateway } = kept(context, await protectedBy(provider.issuer, REALM));
  const error = await logIn("1.x", `${base}/mcp`).then(
    () => assert.fail("the login should fail"),
    (reason: unknown) => reason as Error,
  );
  return { log: gateway.log().join("\n"), error };
}

test("a realm without audience mapper: the log says what the audience is and how to fix it [S4.3-7] [S5-9]", async (context) => {
  const { log } = await failedLogin(context, kept(context, await openRealm({ sendsIss: false, audience: "account" })));
  assert.match(log, /the token's audience is \[account\], expected one of \[gateway\]: add an audience mapper/);
});

test("a realm with closed trusted hosts: its text reaches the client, and the log says how to fix it [S5-10]", async (context) => {
  const { log, error } = await failedLogin(context, kept(context, await openRealm({ refusal: TRUSTED_HOSTS_REFUSAL })));
  assert.match(error.message, /Trusted Hosts/);
  assert.match(
    log,
    /the identity provider rejected a client registration.*Host Sending Client Registration Request Must Match/,
  );
});
