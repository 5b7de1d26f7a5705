/**
 * The metadata documents that the policy serves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Answer } from "../../../test/support/identity/fake-fetch.ts";
import {
  AS,
  BASE,
  bearer,
  CODE,
  compile,
  key,
  plainConfig,
  REALM,
  realmConfig,
  realmDocument,
  registrationOf,
  tenantConfig,
  tokenRequest,
} from "../../../test/support/identity/mcp-authentication.ts";
import type { RequestWords } from "../../../test/support/identity/policy-env.ts";
import { keySetOf } from "../../../test/support/identity/tokens.ts";
import { mcpAuthentication } from "./policy.ts";

for (const path of ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"]) {
  test(`serves the protected resource metadata at ${path} [S2.2-7] [S2.4-5] [S9-4]`, async () => {
    assert.deepEqual(await (await compile(realmConfig)).document(path), {
      resource: `${BASE}/mcp`,
      authorization_servers: [`${BASE}/mcp`],
      mcp_protocol_version: "2025-06-18",
      resource_type: "mcp-server",
      scopes_supported: ["tools"],
      bearer_methods_supported: ["header"],
    });
  });
}

test("an empty list of scopes removes them from the resource document and the server metadata", async () => {
  const { issuer } = plainConfig;
  const body = {
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    jwks_uri: `${issuer}/keys`,
    scopes_supported: ["openid", "mail"],
  };
  const answers = { "https://id.example.com/.well-known/oauth-authorization-server/oauth": { body } };
  const scopesOf = async (resourceMetadata: object) => {
    const config = { ...plainConfig, resourceMetadata: { resource: `${BASE}/mcp`, ...resourceMetadata } };
    return (await (await compile(config, answers)).document(`${AS}/mcp`)).scopes_supported;
  };
  assert.deepEqual(await scopesOf({}), body.scopes_supported);
  assert.equal(await scopesOf({ scopesSupported: [] }), undefined);
});

test("configured keys are added in snake_case and override others; empty lists are omitted [S2.2-11]", async () => {
  const resourceMetadata = {
    resource: `${BASE}/mcp`,
    authorizationServers: [REALM],
    resourceDocumentation: "https://docs.example.com",
    scopesSupported: [],
  };
  const document = await (await compile({ ...realmConfig, resourceMetadata })).document(
    "/.well-known/oauth-protected-resource",
  );
  assert.deepEqual(document.authorization_servers, [REALM]);
  assert.equal(document.resource_documentation, "https://docs.example.com");
  assert.ok(!("scopes_supported" in document) && !("bearer_methods_supported" in document));
});

const serverPaths = [
  { path: AS, issuer: BASE, endpoints: `${BASE}${AS}` },
  { path: "/.well-known/openid-configuration", issuer: BASE, endpoints: `${BASE}${AS}` },
  { path: `${AS}/mcp`, issuer: `${BASE}/mcp`, endpoints: `${BASE}${AS}/mcp` },
  { path: "/.well-known/openid-configuration/mcp", issuer: `${BASE}/mcp`, endpoints: `${BASE}${AS}/mcp` },
  { path: "/mcp/.well-known/openid-configuration", issuer: `${BASE}/mcp`, endpoints: `${BASE}${AS}/mcp` },
];
for (const { path, issuer, endpoints } of serverPaths) {
  test(`realm metadata at ${path} names the issuer that the path was built from [S2.5-1] [S2.5-2] [S4.3-2] [S2.5-6] [S9-7]`, async () => {
    const document = await (await compile(realmConfig)).document(path);
    assert.equal(document.issuer, issuer);
    assert.equal(document.registration_endpoint, `${endpoints}/client-registration`);
    assert.equal(document.authorization_endpoint, realmDocument.authorization_endpoint);
    assert.equal(document.token_endpoint, realmDocument.token_endpoint);
    assert.deepEqual(document.token_endpoint_auth_methods_supported, ["none", "client_secret_basic"]);
    assert.ok(!("authorization_response_iss_parameter_supported" in document) && !("signed_metadata" in document));
  });

  test(`tenant metadata at ${path} points authorize and token at the gateway [S2.5-3] [S4.3-8]`, async () => {
    const document = await (await compile(tenantConfig)).document(path);
    assert.equal(document.issuer, issuer);
    assert.equal(document.authorization_endpoint, `${endpoints}/authorize`);
    assert.equal(document.token_endpoint, `${endpoints}/token`);
    assert.equal(document.registration_endpoint, `${endpoints}/client-registration`);
    assert.deepEqual(document.code_challenge_methods_supported, ["S256"]);
  });
}

test("any origin can read and preflight the documents, but only read them [S9-8]", async () => {
  const { reply, refused } = await compile(realmConfig);
  assert.equal((await reply({ method: "GET", path: AS })).headers.get("access-control-allow-origin"), "*");
  const preflight = await reply({ method: "OPTIONS", path: AS });
  assert.equal(preflight.status, 204);
  assert.match(preflight.headers.get("access-control-allow-headers") ?? "", /mcp-protocol-version/);
  const error = await refused({ method: "POST", path: AS });
  assert.equal(error.status, 405);
  assert.equal(error.headers?.allow, "GET, HEAD, OPTIONS");
});

test("browser clients can read errors of the login endpoints", async () => {
  const { env, refused } = await compile(tenantConfig);
  env.provider.down = true;
  const large = registrationOf({ client_name: "x".repeat(65 * 1024) });
  const wrong: [RequestWords, number][] = [
    [{ method: "GET", path: AS }, 503],
    [tokenRequest(CODE), 502],
    [{ method: "PUT", path: `${AS}/token` }, 405],
    [large, 413],
  ];
  for (const [words, status] of wrong) {
    const error = await refused(words);
    assert.equal(error.status, status);
    assert.equal(error.headers?.["access-control-allow-origin"], "*");
  }
});

test("the literal address also serves a resource with another path [S2.4-4]", async () => {
  const config = { ...realmConfig, resourceMetadata: { resource: `${BASE}/tools` } };
  const { document } = await compile(config);
  for (const suffix of ["/tools", "/mcp", ""]) {
    const { resource } = (await document(`/.well-known/oauth-protected-resource${suffix}`)) as { resource: string };
    assert.equal(resource, `${BASE}/tools`, suffix);
  }
});

test("the route matches exactly the paths that need no token [V11] [S5-16]", () => {
  const paths = (config: unknown): (string | undefined)[] =>
    (mcpAuthentication.extraMatches?.(mcpAuthentication.schema.parse(config)) ?? []).map(({ exact }) => exact).sort();
  assert.deepEqual(paths(realmConfig), [
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server/client-registration",
    "/.well-known/oauth-authorization-server/mcp",
    "/.well-known/oauth-authorization-server/mcp/client-registration",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/mcp",
    "/mcp/.well-known/openid-configuration",
  ]);
  assert.equal(paths(tenantConfig).length, 13);
});

test("the plain provider's metadata is looked up at the three standard paths", async () => {
  const { env, document, refused } = await compile(plainConfig);
  const path = { method: "GET", path: AS };
  assert.equal((await refused(path)).status, 503);
  const asked = env.provider.requests.map(({ url }) => url);
  assert.deepEqual(asked.slice(0, 3), [
    "https://id.example.com/.well-known/oauth-authorization-server/oauth",
    "https://id.example.com/oauth/.well-known/openid-configuration",
    "https://id.example.com/.well-known/openid-configuration/oauth",
  ]);
  const issuer = plainConfig.issuer;
  env.provider.answers.set(asked[1] ?? "", { body: { issuer, jwks_uri: "https://keys.example.com/jwks" } });
  env.provider.answers.set("https://keys.example.com/jwks", { body: keySetOf(key) });
  await env.clock.advance(3_000);
  assert.ok(!("registration_endpoint" in (await document(AS))), "a provider without registration gets none");
});

test("the plain provider's keys are at its jwks_uri", async () => {
  const url = "https://id.example.com/oauth/.well-known/openid-configuration";
  const issuer = plainConfig.issuer;
  const { run } = await compile(plainConfig, {
    [url]: { body: { issuer, jwks_uri: "https://keys.example.com/jwks" } },
    "https://keys.example.com/jwks": { body: keySetOf(key) },
  });
  assert.equal((await run({ headers: bearer({ iss: issuer }) })).reply, undefined);
});

const hostileDocuments = {
  "another issuer [D7]": { ...realmDocument, issuer: `${REALM}/` },
  "a script as authorization endpoint [V6] [D6]": { ...realmDocument, authorization_endpoint: "javascript:1" },
  "a file as token endpoint [V6] [D6]": { ...realmDocument, token_endpoint: "file:/c:/windows/calc.exe" },
  "an option as endpoint [V6] [D6]": { ...realmDocument, authorization_endpoint: "--x" },
  "a registration endpoint inside our network [D6]": {
    ...realmDocument,
    registration_endpoint: "http://169.254.169.254/",
  },
  "a key set inside our network [D6]": { ...realmDocument, jwks_uri: "http://10.0.0.1/keys" },
};
for (const [name, body] of Object.entries(hostileDocuments)) {
  test(`metadata with ${name} is not forwarded`, async () => {
    const { env, refused } = await compile(realmConfig, { [`${REALM}/.well-known/openid-configuration`]: { body } });
    const error = await refused({ method: "GET", path: AS });
    assert.deepEqual([error.status, error.headers?.["retry-after"]], [503, "2"]);
    const registration = {
      path: `${AS}/client-registration`,
      headers: { "content-type": "application/json" },
      body: "{}",
    };
    assert.equal((await refused(registration)).status, 503);
    assert.ok(env.provider.requests.every(({ method }) => method !== "POST"));
  });
}

test("metadata that is a redirect, not JSON or not an object is not followed or forwarded [D6]", async () => {
  const url = `${REALM}/.well-known/openid-configuration`;
  const answers: Answer[] = [
    { status: 302, headers: { location: "http://127.0.0.1:1/" }, body: realmDocument },
    { body: "<html>" },
    { body: [realmDocument] },
  ];
  for (const answer of answers) {
    const { env, refused } = await compile(realmConfig, { [url]: answer });
    const error = await refused({ method: "GET", path: AS });
    assert.deepEqual([error.status, error.headers?.["retry-after"]], [503, "2"]);
    assert.ok(env.provider.requests.every((request) => request.url.startsWith(REALM)));
  }
});

test("metadata stays available while the provider is down [R19]", async () => {
  const { env, document } = await compile(realmConfig);
  await document(AS);
  env.provider.down = true;
  await env.clock.advance(3_600_000);
  assert.equal((await document(AS)).issuer, BASE);
});

test("a burst of metadata requests makes one fetch, even while it fails", async () => {
  const { env, run } = await compile(realmConfig, { [`${REALM}/.well-known/openid-configuration`]: { status: 500 } });
  const before = env.provider.requests.length;
  for (let i = 0; i < 20; i++) await run({ method: "GET", path: AS }).catch(() => undefined);
  assert.equal(env.provider.requests.length - before, 1);
});
