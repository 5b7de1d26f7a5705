/**
 * Spec 4.1, 5, 7: what protected routes answer over real sockets: the refusals, key rotation, a provider that is down, credentials that backends do and do not get, and secrets nowhere.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { openRealm, openTenant } from "../support/identity/identity-provider.ts";
import { ISSUER, KEYS_FILE, kept, token } from "../support/identity/known-issuer.ts";
import { logIn, REDIRECT_URI } from "../support/identity/mcp-login.ts";
import { DEMO_TARGET, initialize, startProtectedGateway } from "../support/identity/protected-gateway.ts";
import { rawRequest } from "../support/raw-client.ts";

/** Answers with the headers that it got. */
async function openEcho(): Promise<{ address: string; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ url: request.url, headers: request.headers }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = (): Promise<void> => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(() => resolve()));
  };
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

test("the two 401 answers, the 403, and a session, as the spec has them [S1-2] [S2.1-9] [S2.2-4] [S2.3-2] [S2.4-1] [S2.4-2] [S2.4-3] [S4.1-2] [S5-2] [S5-3] [S7-1] [S2.1-23] [S4.1-10] [S7-7]", async (context) => {
  const { base, request } = kept(
    context,
    await startProtectedGateway(
      (origin) => `
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      mode: strict
      issuer: ${ISSUER}
      audiences: [gateway]
      provider: { idp_realm: {} }
      jwks: ./jwks.json
      resourceMetadata: { resource: ${origin}/mcp, scopesSupported: [tools], bearerMethodsSupported: [header] }
    authorization:
      rules: ['"admin" in jwt.realm_access.roles']
`,
      { files: KEYS_FILE },
    ),
  );
  const metadataUrl = `${base}/.well-known/oauth-protected-resource/mcp`;

  for (const method of ["POST", "GET", "DELETE", "PUT"]) {
    const missing = await request("/mcp", { method });
    assert.equal(missing.status, 401, method);
    assert.equal(missing.headers.get("www-authenticate"), `Bearer resource_metadata="${metadataUrl}"`);
    assert.deepEqual(await missing.json(), { error: "unauthorized", error_description: "JWT token required" });
  }

  const expired = await request("/mcp", initialize(token({ exp: 1 })));
  assert.equal(expired.status, 401);
  assert.equal(
    expired.headers.get("www-authenticate"),
    `Bearer error="invalid_token", error_description="the token is expired", resource_metadata="${metadataUrl}"`,
  );
  assert.deepEqual(await expired.json(), { error: "invalid_token", error_description: "the token is expired" });

  const denied = await request("/mcp", initialize(token({ realm_access: { roles: ["user"] } })));
  assert.equal(denied.status, 403);
  assert.deepEqual(await denied.json(), { error: "forbidden", error_description: "authorization failed" });

  const admitted = await request("/mcp", initialize(token({ realm_access: { roles: ["admin"] } })));
  assert.equal(admitted.status, 200);
  assert.match(admitted.headers.get("mcp-session-id") ?? "", /./);
  assert.match(await admitted.text(), /"serverInfo"/);

  const document = await request("/.well-known/oauth-protected-resource/mcp");
  assert.equal(document.headers.get("access-control-allow-origin"), "*");
  assert.deepEqual(await document.json(), {
    resource: `${base}/mcp`,
    authorization_servers: [`${base}/mcp`],
    mcp_protocol_version: "2025-06-18",
    resource_type: "mcp-server",
    scopes_supported: ["tools"],
    bearer_methods_supported: ["header"],
  });
});

test("what is sent behind a body that a 401 left unread never becomes a request [V20]", async (context) => {
  const echo = kept(context, await openEcho());
  const { gateway } = kept(
    context,
    await startProtectedGateway(
      () => `
gateways: { default: { port: 0 } }
routes:
  - matches: [{ path: { pathPrefix: /open } }]
    backends: [{ host: "${echo.address}" }]
  - backends: [{ host: "${echo.address}" }]
    policies:
      jwtAuth: { issuer: "${ISSUER}", audiences: [gateway], jwks: ./jwks.json }
`,
      { files: KEYS_FILE },
    ),
  );
  const smuggled = "GET /open/smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
  for (const body of [
    `Content-Length: ${1_000_000 + smuggled.length}\r\n\r\n${"x".repeat(1_000_000)}${smuggled}`,
    `Transfer-Encoding: chunked\r\n\r\nf4240\r\n${"x".repeat(1_000_000)}\r\n${smuggled}`,
  ]) {
    const answer = await rawRequest(gateway.port(), `POST /guarded HTTP/1.1\r\nHost: a\r\n${body}`);
    assert.deepEqual(answer.statuses, [401]);
    assert.ok(!gateway.log().some((line) => line.includes("smuggled")));
  }
});

test("after a rotation of keys clients with new tokens go on, and old tokens end [R21]", async (context) => {
  const provider = kept(context, await openRealm({ sendsIss: false }));
  const { base, gateway, request } = kept(
    context,
    await startProtectedGateway(
      (origin) => `
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      mode: strict
      issuer: ${provider.issuer}
      audiences: [gateway]
      provider: { keycloak: {} }
      resourceMetadata: { resource: ${origin}/mcp, scopesSupported: [openid, tools] }
`,
    ),
  );
  const before = await logIn("1.x", `${base}/mcp`);
  const oldToken = before.store.tokens?.access_token ?? "";
  provider.rotateKeys();
  const afterwards = await logIn("1.x", `${base}/mcp`);
  const newToken = afterwards.store.tokens?.access_token ?? "";
  assert.equal((await request("/mcp", initialize(newToken))).status, 200);
  assert.equal((await request("/mcp", initialize(oldToken))).status, 401);
  const fetches = provider.requests.filter((line) => line.endsWith("/certs")).length;
  assert.equal(fetches, 2, "one at the start, one for the new key");
  const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).text();
  assert.match(dump, /"idp_realm"/, "the dump has the name of the specification");
  assert.doesNotMatch(dump, /"keycloak"/);
  await before.client.close();
  await afterwards.client.close();
});

test("the gateway starts while the provider is down: no token is 401, a token and metadata 503 [R18]", async (context) => {
  const provider = await openRealm();
  await provider.close();
  const { request } = kept(
    context,
    await startProtectedGateway(
      (origin) => `
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      issuer: ${provider.issuer}
      audiences: [gateway]
      provider: { idp_realm: {} }
      resourceMetadata: { resource: ${origin}/mcp }
`,
    ),
  );
  assert.equal((await request("/mcp", initialize())).status, 401);
  const withToken = await request("/mcp", initialize(token()));
  assert.equal(withToken.status, 503);
  assert.match(withToken.headers.get("retry-after") ?? "", /^\d+$/);
  assert.equal((await request("/.well-known/oauth-authorization-server")).status, 503);
  assert.equal((await request("/.well-known/oauth-protected-resource/mcp")).status, 200);
});

test("a credential that the gateway read is withheld from backends unless backendAuth passes it on", async (context) => {
  const echo = kept(context, await openEcho());
  const { request } = kept(
    context,
    await startProtectedGateway(
      () => `
gateways: { default: { port: 0 } }
routes:
  - matches: [{ path: { exact: /withheld } }]
    backends: [{ host: "${echo.address}" }]
    policies:
      jwtAuth: { issuer: "${ISSUER}", audiences: [gateway], jwks: ./jwks.json }
  - matches: [{ path: { exact: /route } }]
    backends: [{ host: "${echo.address}" }]
    policies:
      jwtAuth: { issuer: "${ISSUER}", audiences: [gateway], jwks: ./jwks.json }
      backendAuth: { passthrough: {} }
  - matches: [{ path: { exact: /backend } }]
    backends: [{ host: "${echo.address}", policies: { backendAuth: { passthrough: {} } } }]
    policies:
      jwtAuth: { issuer: "${ISSUER}", audiences: [gateway], jwks: ./jwks.json }
  - matches: [{ path: { exact: /key } }]
    backends: [{ host: "${echo.address}", policies: { backendAuth: { key: "\${BACKEND_KEY}" } } }]
    policies:
      apiKey: { keys: [{ key: client-key-1, metadata: { user_id: alice } }], location: { queryParameter: { name: key } } }
      transformations: { request: { set: { x-user: apiKey.user_id } } }
  - matches: [{ path: { exact: /open } }]
    backends: [{ host: "${echo.address}" }]
`,
      { files: KEYS_FILE, environment: { BACKEND_KEY: "backend-key-1" } },
    ),
  );
  const bearer = `Bearer ${token()}`;
  const echoed = async (
    path: string,
    authorization = bearer,
  ): Promise<{ url: string; headers: Record<string, string> }> => {
    const response = await request(path, { headers: { authorization } });
    assert.equal(response.status, 200, path);
    return (await response.json()) as { url: string; headers: Record<string, string> };
  };
  assert.equal((await echoed("/withheld")).headers.authorization, undefined);
  assert.equal((await echoed("/route")).headers.authorization, bearer);
  assert.equal((await echoed("/backend")).headers.authorization, bearer);
  assert.equal((await echoed("/open")).headers.authorization, bearer);
  const keyed = await echoed("/key?a=1&key=client-key-1&b=2", "");
  assert.equal(keyed.headers.authorization, "Bearer backend-key-1");
  assert.equal(keyed.headers["x-user"], "alice");
  assert.equal(keyed.url, "/key?a=1&b=2");
  assert.equal((await request("/key")).status, 401);
});

test("no token, secret, key or code is in the log or the dump after a full login [D14] [C5]", async (context) => {
  const provider = kept(
    context,
    await openTenant({ clientId: "app-1", clientSecret: "planted-client-secret", redirectUri: REDIRECT_URI }),
  );
  const { base, gateway, request } = kept(
    context,
    await startProtectedGateway(
      (origin) => `
mcp:
  port: 0
  targets: [${DEMO_TARGET}]
  policies:
    mcpAuthentication:
      mode: strict
      issuer: ${provider.issuer}
      audiences: [app-1]
      provider: { idp_tenant: {} }
      clientId: app-1
      clientSecret: planted-client-secret
      resourceMetadata: { resource: ${origin}/mcp, scopesSupported: [openid, tools] }
`,
    ),
  );
  const session = await logIn("2.x", `${base}/mcp`);
  await session.client.listTools();
  const { access_token, refresh_token } = session.store.tokens ?? {};
  await request("/mcp", initialize(`${access_token}x`));
  const dump = await fetch(`${gateway.adminUrl}/config_dump`).then(
    (response) => response.text(),
    () => "",
  );
  const seen = `${gateway.log().join("\n")}\n${dump}`;
  const secrets = ["planted-client-secret", access_token, refresh_token, session.callback.get("code")];
  for (const secret of secrets) assert.ok(secret && !seen.includes(secret), `a secret of ${secret?.length} characters`);
  await session.client.close();
});
