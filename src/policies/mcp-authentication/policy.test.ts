import assert from "node:assert/strict";
import { test } from "node:test";
import type { Answer } from "../../../test/support/identity/fake-fetch.ts";
import { bodyOf, createExchange, createTestEnv, type RequestWords } from "../../../test/support/identity/policy-env.ts";
import { createSigningKey, keySetOf, START_MS, signToken } from "../../../test/support/identity/tokens.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Reply } from "../../core/reply.ts";
import { mcpAuthentication } from "./policy.ts";

const REALM = "http://localhost:8080/realms/mcp";
const TENANT = "http://localhost:9090/11111111-2222-3333-4444-555555555555";
const BASE = "http://localhost:3000";
const PRM_URL = `${BASE}/.well-known/oauth-protected-resource/mcp`;
const AS = "/.well-known/oauth-authorization-server";
const key = createSigningKey("ES256", "k1");

const realmConfig = {
  mode: "strict",
  issuer: REALM,
  audiences: ["gateway"],
  provider: { idp_realm: {} },
  resourceMetadata: { resource: `${BASE}/mcp`, scopesSupported: ["tools"], bearerMethodsSupported: ["header"] },
};
const tenantConfig = {
  mode: "strict",
  issuer: `${TENANT}/v2.0`,
  audiences: ["api://client-1", "client-1"],
  provider: { idp_tenant: {} },
  clientId: "client-1",
  clientSecret: "planted-secret",
  resourceMetadata: { resource: `${BASE}/mcp` },
};
const plainConfig = { ...realmConfig, issuer: "https://id.example.com/oauth", provider: undefined };

const realmDocument = {
  issuer: REALM,
  authorization_endpoint: `${REALM}/protocol/openid-connect/auth`,
  token_endpoint: `${REALM}/protocol/openid-connect/token`,
  registration_endpoint: `${REALM}/clients-registrations/openid-connect`,
  jwks_uri: `${REALM}/protocol/openid-connect/certs`,
  code_challenge_methods_supported: ["plain", "S256"],
  token_endpoint_auth_methods_supported: ["client_secret_basic"],
  scopes_supported: ["openid", "roles", "offline_access"],
  authorization_response_iss_parameter_supported: true,
  signed_metadata: "x.y.z",
};
const tenantDocument = {
  issuer: `${TENANT}/v2.0`,
  authorization_endpoint: `${TENANT}/oauth2/v2.0/authorize`,
  token_endpoint: `${TENANT}/oauth2/v2.0/token`,
  jwks_uri: `${TENANT}/discovery/v2.0/keys`,
};
const ANSWERS: Record<string, Answer> = {
  [`${REALM}/.well-known/openid-configuration`]: { body: realmDocument },
  [realmDocument.jwks_uri]: { body: keySetOf(key) },
  [`${TENANT}/v2.0/.well-known/openid-configuration`]: { body: tenantDocument },
  [tenantDocument.jwks_uri]: { body: keySetOf(key) },
};

async function compile(config: unknown, answers: Record<string, Answer> = {}) {
  const env = createTestEnv();
  for (const [url, answer] of Object.entries({ ...ANSWERS, ...answers })) env.provider.answers.set(url, answer);
  const parsed = mcpAuthentication.schema.parse(config);
  const hooks = mcpAuthentication.compile(parsed, env);
  await env.clock.advance(0);
  const run = async (words: RequestWords): Promise<{ reply: Reply | undefined; exchange: Exchange }> => {
    const exchange = createExchange(words);
    return { reply: await hooks.request?.(exchange), exchange };
  };
  const reply = async (words: RequestWords): Promise<Reply> => {
    const { reply: answered } = await run(words);
    assert.ok(answered, "an answer of the gateway itself");
    return answered;
  };
  const refused = async (words: RequestWords): Promise<GatewayError> => {
    let thrown: unknown;
    await run(words).catch((error: unknown) => {
      thrown = error;
    });
    assert.ok(thrown, "a refusal");
    return thrown as GatewayError;
  };
  const document = async (path: string): Promise<Record<string, unknown>> =>
    bodyOf(await reply({ method: "GET", path })) as Record<string, unknown>;
  return { env, hooks, run, reply, refused, document };
}

function bearer(claims: Record<string, unknown> = {}): Record<string, string> {
  const exp = START_MS / 1000 + 300;
  return {
    authorization: `Bearer ${signToken({ key, claims: { iss: REALM, aud: "gateway", sub: "alice", exp, ...claims } })}`,
  };
}

// Tokens (spec 5, 7)

for (const method of ["GET", "POST", "DELETE", "PUT", "OPTIONS"]) {
  test(`${method} without a token gets exactly the 401 of the spec [S5-2]`, async () => {
    const error = await (await compile(realmConfig)).refused({ method });
    assert.equal(error.code, "unauthorized");
    assert.equal(error.message, "JWT token required");
    assert.deepEqual(error.headers, { "www-authenticate": `Bearer resource_metadata="${PRM_URL}"` });
  });
}

test("a valid token's claims become readable, and its header is withheld from backends", async () => {
  const { run } = await compile(realmConfig);
  const headers = bearer({ realm_access: { roles: ["admin"] } });
  const { reply, exchange } = await run({ headers });
  assert.equal(reply, undefined);
  assert.deepEqual(exchange.facts.jwt?.realm_access, { roles: ["admin"] });
  assert.deepEqual(exchange.credentialHeaders, ["authorization"]);
  assert.deepEqual(exchange.credential, { header: "authorization", value: headers.authorization });
});

test("a cached token is accepted without a promise", async () => {
  const { hooks } = await compile(realmConfig);
  const headers = bearer();
  await hooks.request?.(createExchange({ headers }));
  assert.equal(hooks.request?.(createExchange({ headers })), undefined);
});

test("a refused token is told coarsely to the client and exactly to the operator", async () => {
  const error = await (await compile(realmConfig)).refused({ headers: bearer({ aud: ["account"] }) });
  assert.equal(error.code, "invalid_token");
  assert.equal(error.message, "the token's audience is not accepted");
  assert.equal(
    error.headers?.["www-authenticate"],
    `Bearer error="invalid_token", error_description="the token's audience is not accepted", resource_metadata="${PRM_URL}"`,
  );
  assert.equal(
    error.detail,
    "the token's audience is [account], expected one of [gateway]: add an audience mapper to the client or to one of its client scopes",
  );
});

test("a v1 token under a v2 issuer is refused with the mend [A7]", async () => {
  const v2 = { ...tenantConfig, issuer: "https://login.microsoftonline.com/tid/v2.0" };
  const subject = await compile(v2, {
    "https://login.microsoftonline.com/tid/discovery/v2.0/keys": { body: keySetOf(key) },
  });
  const error = await subject.refused({ headers: bearer({ iss: "https://sts.windows.net/tid/", aud: "client-1" }) });
  assert.match(error.detail ?? "", /issues v1 access tokens: set `issuer` to the v1 form/);
});

const schemes: [string, RequestWords["headers"], string][] = [
  ["another scheme counts as no token [A5]", { authorization: "Basic YTpi" }, "unauthorized"],
  ["a scheme that only begins like Bearer counts as no token [A5]", { authorization: "Bearerx y" }, "unauthorized"],
  ["two spaces are no token [A5]", { authorization: "Bearer  x" }, "invalid_token"],
  ["a tab is no separator [A5]", { authorization: "Bearer\tx" }, "invalid_token"],
  ["two tokens are none [A5]", { authorization: "Bearer a, Bearer b" }, "invalid_token"],
  ["the bare scheme is malformed [A5]", { authorization: "Bearer" }, "invalid_token"],
  ["a token in the query is not read [A5]", {}, "unauthorized"],
];
for (const [name, headers, code] of schemes) {
  test(`${name}`, async () => {
    const error = await (await compile(realmConfig)).refused({ headers: headers ?? {}, query: "access_token=x" });
    assert.equal(error.code, code);
  });
}

test("the scheme's case does not matter, and two authorization lines are refused [A5]", async () => {
  const { run, refused } = await compile(realmConfig);
  const { authorization = "" } = bearer();
  assert.equal((await run({ headers: { authorization: authorization.replace("Bearer", "bEARER") } })).reply, undefined);
  const error = await refused({
    headers: [
      ["authorization", authorization],
      ["Authorization", authorization],
    ],
  });
  assert.equal(error.code, "invalid_token");
  assert.match(error.detail ?? "", /more than one authorization header/);
});

const modes = [
  { mode: undefined, none: "unauthorized", bad: "invalid_token" },
  { mode: "strict", none: "unauthorized", bad: "invalid_token" },
  { mode: "optional", none: "passes", bad: "invalid_token" },
  { mode: "permissive", none: "passes", bad: "passes" },
];
for (const { mode, none, bad } of modes) {
  test(`mode ${mode ?? "omitted"}: no token ${none}, a bad one ${bad}, a good one passes [S2.2-1]`, async () => {
    const { run } = await compile({ ...realmConfig, mode });
    const outcome = async (headers: Record<string, string>): Promise<string> =>
      run({ headers }).then(
        () => "passes",
        (error: GatewayError) => error.code,
      );
    assert.equal(await outcome({}), none);
    assert.equal(await outcome(bearer({ aud: "other" })), bad);
    assert.equal(await outcome(bearer()), "passes");
  });
}

test("a token that permissive mode lets pass is neither readable nor forwarded", async () => {
  const { run } = await compile({ ...realmConfig, mode: "permissive" });
  const { exchange } = await run({ headers: bearer({ aud: "other" }) });
  assert.equal(exchange.facts.jwt, undefined);
  assert.deepEqual(exchange.credentialHeaders, ["authorization"]);
  assert.equal(exchange.credential, undefined);
});

test("a realm's keys are at the usual place below its issuer, whatever its discovery document says [S4.3-1]", async () => {
  const { run } = await compile(realmConfig, {
    [`${REALM}/.well-known/openid-configuration`]: { status: 503 },
    [`${REALM}/protocol/openid-connect/certs`]: { body: keySetOf(key) },
  });
  assert.equal((await run({ headers: bearer() })).reply, undefined);
});

test("while keys are missing, no token is still 401 and a token is 503 with retry-after", async () => {
  const { refused } = await compile(realmConfig, { [realmDocument.jwks_uri]: { status: 503 } });
  assert.equal((await refused({})).code, "unauthorized");
  const error = await refused({ headers: bearer() });
  assert.equal(error.code, "not_ready");
  assert.ok(Number(error.headers?.["retry-after"]) >= 1);
});

// Documents (spec 2.4, 2.5)

for (const path of ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"]) {
  test(`the protected resource metadata stands at ${path} [S2.2-7]`, async () => {
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

test("configured keys go into the document in snake_case and override; empty lists are left out", async () => {
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
  test(`realm metadata at ${path} names the issuer that the path was built from [S2.5-1] [S2.5-2] [S4.3-2]`, async () => {
    const document = await (await compile(realmConfig)).document(path);
    assert.equal(document.issuer, issuer);
    assert.equal(document.registration_endpoint, `${endpoints}/client-registration`);
    assert.equal(document.authorization_endpoint, realmDocument.authorization_endpoint);
    assert.equal(document.token_endpoint, realmDocument.token_endpoint);
    assert.deepEqual(document.token_endpoint_auth_methods_supported, ["none", "client_secret_basic"]);
    assert.ok(!("authorization_response_iss_parameter_supported" in document) && !("signed_metadata" in document));
  });

  test(`tenant metadata at ${path} points authorize and token at the gateway [S2.5-3]`, async () => {
    const document = await (await compile(tenantConfig)).document(path);
    assert.equal(document.issuer, issuer);
    assert.equal(document.authorization_endpoint, `${endpoints}/authorize`);
    assert.equal(document.token_endpoint, `${endpoints}/token`);
    assert.equal(document.registration_endpoint, `${endpoints}/client-registration`);
    assert.deepEqual(document.code_challenge_methods_supported, ["S256"]);
  });
}

test("documents may be read and preflighted by any origin, and only read", async () => {
  const { reply, refused } = await compile(realmConfig);
  assert.equal((await reply({ method: "GET", path: AS })).headers.get("access-control-allow-origin"), "*");
  const preflight = await reply({ method: "OPTIONS", path: AS });
  assert.equal(preflight.status, 204);
  assert.match(preflight.headers.get("access-control-allow-headers") ?? "", /mcp-protocol-version/);
  const error = await refused({ method: "POST", path: AS });
  assert.equal(error.status, 405);
  assert.equal(error.headers?.allow, "GET, HEAD, OPTIONS");
});

test("what goes wrong at a login path can be read by clients in browsers too", async () => {
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

test("the literal address answers for a resource with another path too", async () => {
  const config = { ...realmConfig, resourceMetadata: { resource: `${BASE}/tools` } };
  const { document } = await compile(config);
  for (const suffix of ["/tools", "/mcp", ""]) {
    const { resource } = (await document(`/.well-known/oauth-protected-resource${suffix}`)) as { resource: string };
    assert.equal(resource, `${BASE}/tools`, suffix);
  }
});

test("every path that is answered without a token is claimed for the route, and nothing else [V11]", () => {
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

test("the plain provider's metadata is looked for in the three standard places", async () => {
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
  test(`metadata with ${name} is not passed on`, async () => {
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

test("metadata that is a redirect, no JSON or no object is not followed or passed on [D6]", async () => {
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

test("metadata outlives the provider [R19]", async () => {
  const { env, document } = await compile(realmConfig);
  await document(AS);
  env.provider.down = true;
  await env.clock.advance(3_600_000);
  assert.equal((await document(AS)).issuer, BASE);
});

test("a burst of metadata requests makes one fetch, also while it fails", async () => {
  const { env, run } = await compile(realmConfig, { [`${REALM}/.well-known/openid-configuration`]: { status: 500 } });
  const before = env.provider.requests.length;
  for (let i = 0; i < 20; i++) await run({ method: "GET", path: AS }).catch(() => undefined);
  assert.equal(env.provider.requests.length - before, 1);
});

// Registration (spec 2.5)

const REGISTRATION = {
  client_name: "Inspector",
  redirect_uris: ["http://localhost:6274/oauth/callback"],
  grant_types: ["authorization_code"],
  response_types: ["code"],
  token_endpoint_auth_method: "none",
};
function registrationOf(body: unknown, type = "application/json"): RequestWords {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return {
    path: `${AS}/mcp/client-registration`,
    headers: { "content-type": type, cookie: "a=b", authorization: "x" },
    body: text,
  };
}

test("realm registration passes through, with the answer's own status and text, and without other headers [D4] [S2.5-4] [S4.3-2]", async () => {
  const url = realmDocument.registration_endpoint;
  const client = { client_id: "generated", redirect_uris: REGISTRATION.redirect_uris };
  const { env, reply } = await compile(realmConfig, {
    [url]: { status: 201, body: client, headers: { "set-cookie": "s=1" } },
  });
  const answered = await reply(registrationOf(REGISTRATION));
  assert.equal(answered.status, 201);
  assert.deepEqual(bodyOf(answered), client);
  assert.equal(answered.headers.get("access-control-allow-origin"), "*");
  assert.equal(answered.headers.has("set-cookie"), false);
  const sent = env.provider.requests.find((request) => request.url === url);
  assert.deepEqual(sent?.headers, {
    accept: "application/json",
    "content-type": "application/json",
    authorization: "x",
  });
  assert.deepEqual(JSON.parse(sent?.body?.toString() ?? ""), REGISTRATION);
});

test("what the realm's registration policies refuse is left out: scopes and the vendor's pages", async () => {
  const url = realmDocument.registration_endpoint;
  const { env, reply, document } = await compile(realmConfig, { [url]: { status: 201, body: { client_id: "x" } } });
  const pages = {
    client_uri: "https://github.com/x",
    logo_uri: "https://x",
    tos_uri: "https://x",
    policy_uri: "https://x",
  };
  for (const scope of ["", "openid roles offline_access"])
    await reply(registrationOf({ ...REGISTRATION, ...pages, scope, software_id: "kept" }));
  const sent = env.provider.requests.filter((request) => request.url === url);
  for (const { body } of sent)
    assert.deepEqual(JSON.parse(body?.toString() ?? ""), { ...REGISTRATION, software_id: "kept" });
  assert.equal(sent.length, 2);
  assert.equal("scopes_supported" in (await document(AS)), false);
});

const EXCLUSION = `${REALM}/clients-registrations/default/generated`;

test("a realm that sends iss is asked to leave it out for the client, and the client gets the renewed access token", async () => {
  const client = { client_id: "generated", registration_access_token: "rat-1" };
  const { env, reply } = await compile(realmConfig, {
    [realmDocument.registration_endpoint]: { status: 201, body: client },
    [EXCLUSION]: { body: { clientId: "generated", registrationAccessToken: "rat-2", secret: "inner" } },
  });
  const answered = await reply(registrationOf(REGISTRATION));
  assert.equal(answered.status, 201);
  assert.deepEqual(bodyOf(answered), { client_id: "generated", registration_access_token: "rat-2" });
  const sent = env.provider.requests.find((request) => request.url === EXCLUSION);
  assert.equal(sent?.method, "PUT");
  assert.equal(sent?.headers?.authorization, "Bearer rat-1");
  assert.deepEqual(JSON.parse(sent?.body?.toString() ?? ""), {
    clientId: "generated",
    attributes: { "exclude.issuer.from.auth.response": "true" },
  });
});

test("a realm that will not leave iss out has registered the client all the same, and the log says what follows", async () => {
  const client = { client_id: "generated", registration_access_token: "rat-1" };
  const { env, reply } = await compile(realmConfig, {
    [realmDocument.registration_endpoint]: { status: 201, body: client },
    [EXCLUSION]: { status: 403 },
  });
  assert.deepEqual(bodyOf(await reply(registrationOf(REGISTRATION))), client);
  const line = env.logged.find(({ message }) => message === "client registration could not be completed");
  assert.match(String(line?.fields.mend), /Exclude Issuer From Authentication Response/);
  assert.ok(!JSON.stringify(env.logged).includes("rat-1"));
});

test("a realm that sends no iss is not asked", async () => {
  const { authorization_response_iss_parameter_supported: _, ...body } = realmDocument;
  const { env, reply } = await compile(realmConfig, {
    [`${REALM}/.well-known/openid-configuration`]: { body },
    [realmDocument.registration_endpoint]: {
      status: 201,
      body: { client_id: "generated", registration_access_token: "rat-1" },
    },
  });
  await reply(registrationOf(REGISTRATION));
  assert.ok(env.provider.requests.every(({ method }) => method !== "PUT"));
});

test("the realm's refusal passes through, and the log says how to mend it [S7-5]", async () => {
  const text = "Policy 'Trusted Hosts' rejected request to client-registration service. Details: Host not trusted.";
  const body = { error: "insufficient_scope", error_description: text };
  const { env, reply } = await compile(realmConfig, { [realmDocument.registration_endpoint]: { status: 403, body } });
  const answered = await reply(registrationOf(REGISTRATION));
  assert.equal(answered.status, 403);
  assert.deepEqual(bodyOf(answered), body);
  const line = env.logged.find(({ message }) => message === "the identity provider rejected a client registration");
  assert.match(String(line?.fields.mend), /Trusted Hosts/);
});

test("a realm that names no registration endpoint is asked at its usual place", async () => {
  const { registration_endpoint: _, ...body } = realmDocument;
  const url = `${REALM}/clients-registrations/openid-connect`;
  const { reply } = await compile(realmConfig, {
    [`${REALM}/.well-known/openid-configuration`]: { body },
    [url]: { status: 201, body: { client_id: "x" } },
  });
  assert.equal((await reply(registrationOf(REGISTRATION))).status, 201);
});

test("tenant registration answers with the configured client and echoes only its own fields [D3] [S2.2-5] [S2.5-5] [S4.3-5] [S5-4]", async () => {
  const { env, reply } = await compile(tenantConfig);
  const asked = {
    ...REGISTRATION,
    client_id: "mine",
    client_secret: "mine",
    token_endpoint_auth_method: "client_secret_post",
    jwks: {},
  };
  const answered = await reply(registrationOf(asked));
  assert.equal(answered.status, 201);
  assert.deepEqual(bodyOf(answered), {
    client_id: "client-1",
    token_endpoint_auth_method: "none",
    client_name: "Inspector",
    redirect_uris: REGISTRATION.redirect_uris,
    grant_types: ["authorization_code"],
    response_types: ["code"],
  });
  assert.ok(env.provider.requests.every(({ method }) => method !== "POST"));
});

const badRegistrations: [string, RequestWords, string][] = [
  ["a list", registrationOf([]), "invalid_client_metadata"],
  ["a text", registrationOf('"x"'), "invalid_client_metadata"],
  ["broken JSON", registrationOf("{"), "invalid_client_metadata"],
  ["a form", registrationOf(REGISTRATION, "application/x-www-form-urlencoded"), "invalid_client_metadata"],
  ["deep nesting", registrationOf(`{"a":${"[".repeat(20)}${"]".repeat(20)}}`), "invalid_client_metadata"],
  ...[
    "javascript:alert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "http://evil.example.com/cb",
    "https://ok.example.com/#f",
    "https://*.example.com/",
    "/relative",
    "http://localhost.evil.com/",
  ].map((uri): [string, RequestWords, string] => [
    `the redirect URI ${uri}`,
    registrationOf({ ...REGISTRATION, redirect_uris: [uri] }),
    "invalid_redirect_uri",
  ]),
  [
    "redirect_uris that is a text",
    registrationOf({ ...REGISTRATION, redirect_uris: "https://a.example.com" }),
    "invalid_redirect_uri",
  ],
];
for (const [name, words, error] of badRegistrations) {
  test(`registration refuses ${name} [D1] [D2]`, async () => {
    const answered = await (await compile(tenantConfig)).reply(words);
    assert.equal(answered.status, 400);
    assert.equal((bodyOf(answered) as { error: string }).error, error);
  });
}

for (const uri of [
  "https://a.example.com/cb",
  "http://127.0.0.1:1/",
  "http://[::1]:8/cb",
  "cursor://anysphere.cursor-deeplink/mcp",
  "com.example.app:/cb",
]) {
  test(`registration takes the redirect URI ${uri} [D2]`, async () => {
    const answered = await (await compile(tenantConfig)).reply(
      registrationOf({ ...REGISTRATION, redirect_uris: [uri] }),
    );
    assert.equal(answered.status, 201);
  });
}

test("a body over 64 KiB is refused, and so is the 601st registration of a minute [D1] [D5]", async () => {
  const { env, refused, reply } = await compile(tenantConfig);
  assert.equal((await refused(registrationOf({ client_name: "x".repeat(65 * 1024) }))).code, "body_too_large");
  for (let i = 1; i < 600; i++) await reply(registrationOf(REGISTRATION));
  const error = await refused(registrationOf(REGISTRATION));
  assert.equal(error.code, "rate_limited");
  assert.equal(error.headers?.["retry-after"], "60");
  await env.clock.advance(60_000);
  assert.equal((await reply(registrationOf(REGISTRATION))).status, 201);
});

// The tenant's proxied login (spec 4.3)

async function authorizeLocation(query: string): Promise<string | undefined> {
  const answered = await (await compile(tenantConfig)).reply({ method: "GET", path: `${AS}/mcp/authorize`, query });
  assert.equal(answered.status, 302);
  return answered.headers.get("location");
}

const queries = [
  [
    "client_id=client-1&resource=http%3A%2F%2Flocalhost&state=a%2Bb&scope=x+y",
    "client_id=client-1&state=a%2Bb&scope=x+y",
  ],
  ["resource=a&resource=b&state=s", "state=s"],
  ["%72esource=a&Resource=b&state=s", "state=s"],
  ["state=%E0%A4%A&redirect_uri=http://localhost:1/cb", "state=%E0%A4%A&redirect_uri=http://localhost:1/cb"],
];
for (const [sent = "", forwarded] of queries) {
  test(`authorize forwards ${sent} without resource and byte for byte [D9] [V11] [S4.3-4]`, async () => {
    assert.equal(await authorizeLocation(sent), `${TENANT}/oauth2/v2.0/authorize?${forwarded}`);
  });
}

test("authorize without parameters goes to the bare endpoint, and never anywhere else [D8]", async () => {
  assert.equal(await authorizeLocation(""), `${TENANT}/oauth2/v2.0/authorize`);
  for (const query of [
    "//evil.example.com",
    "x=%0d%0aLocation:%20http://evil",
    "@evil.example.com",
    "\\evil",
    `x=${"a".repeat(8_000)}`,
  ])
    assert.equal(await authorizeLocation(query), `${TENANT}/oauth2/v2.0/authorize?${query}`);
});

test("a repeated parameter is refused at authorize and token [D10]", async () => {
  const { env, reply } = await compile(tenantConfig);
  const authorize = await reply({ method: "GET", path: `${AS}/authorize`, query: "state=a&State=b" });
  const token = await reply(tokenRequest("grant_type=client_credentials&grant_type=authorization_code"));
  for (const answered of [authorize, token]) {
    assert.equal(answered.status, 400);
    assert.equal((bodyOf(answered) as { error: string }).error, "invalid_request");
  }
  assert.ok(env.provider.requests.every(({ method }) => method !== "POST"));
});

function tokenRequest(body: string, headers: Record<string, string> = {}): RequestWords {
  return { path: `${AS}/token`, headers: { "content-type": "application/x-www-form-urlencoded", ...headers }, body };
}

async function forwardedToken(body: string, headers: Record<string, string> = {}, config: unknown = tenantConfig) {
  const url = `${TENANT}/oauth2/v2.0/token`;
  const { env, reply } = await compile(config, {
    [url]: { body: { access_token: "t" }, headers: { "cache-control": "no-store" } },
  });
  const answered = await reply(tokenRequest(body, headers));
  assert.equal(answered.status, 200);
  assert.equal(answered.headers.get("cache-control"), "no-store");
  const sent = env.provider.requests.find((request) => request.url === url);
  return { body: sent?.body?.toString(), headers: sent?.headers };
}

const CODE = "grant_type=authorization_code&client_id=client-1&code=c&code_verifier=v";
const withSecret = [CODE, "grant_type=refresh_token&client_id=client-1&refresh_token=r"];
for (const body of withSecret) {
  test(`the secret is added to ${body} [D11] [S2.2-6] [S4.3-4] [S4.3-6]`, async () => {
    const sent = await forwardedToken(`${body}&resource=http%3A%2F%2Fx`, {
      cookie: "a=b",
      origin: "http://x",
      "x-forwarded-for": "1.2.3.4",
    });
    assert.equal(sent.body, `${body}&client_secret=planted-secret`);
    assert.deepEqual(Object.keys(sent.headers ?? {}).sort(), ["accept", "content-type"]);
  });
}

for (const empty of ["client_secret=", "client_secret", "client_assertion="]) {
  test(`a parameter without a value counts as left out: ${empty}`, async () => {
    const sent = new URLSearchParams((await forwardedToken(`${CODE}&${empty}`)).body);
    assert.deepEqual(sent.getAll("client_secret"), ["planted-secret"]);
  });
}

const withoutSecret: [string, string, Record<string, string>?][] = [
  ["another grant", "grant_type=client_credentials&client_id=client-1"],
  ["a grant in another case", "grant_type=Authorization_Code&client_id=client-1"],
  ["no grant", "client_id=client-1"],
  ["another client", "grant_type=authorization_code&client_id=other"],
  ["a parameter in another case", "Grant_Type=authorization_code&client_id=client-1"],
  ["a secret of the client's own", `${CODE}&client_secret=own`],
  ["an assertion of the client's own", `${CODE}&client_assertion=jwt`],
  ["an authorization header", CODE, { authorization: "Basic YTpi" }],
];
for (const [name, body, headers] of withoutSecret) {
  test(`the secret is not added with ${name} [D11] [S4.3-6]`, async () => {
    const sent = await forwardedToken(body, headers);
    assert.equal(sent.body, body);
    assert.equal(sent.headers?.authorization, headers?.authorization);
  });
}

test("the verifier of a code goes to the provider as it came, and none is made up where there is none [D12]", async () => {
  for (const body of [
    CODE,
    CODE.replace("code_verifier=v", "code_verifier=a%2Db%7E"),
    CODE.replace("&code_verifier=v", ""),
  ])
    assert.equal((await forwardedToken(body)).body, `${body}&client_secret=planted-secret`);
});

test("a public app registration gets no secret [S2.2-6]", async () => {
  const { clientSecret: _, ...config } = tenantConfig;
  assert.equal((await forwardedToken(CODE, {}, config)).body, CODE);
});

test("a secret with special characters is encoded", async () => {
  const sent = await forwardedToken(CODE, {}, { ...tenantConfig, clientSecret: "a&b=c d~é" });
  assert.equal(new URLSearchParams(sent.body).get("client_secret"), "a&b=c d~é");
});

test("the token endpoint takes POST and forms only [D13]", async () => {
  const { refused, reply } = await compile(tenantConfig);
  const error = await refused({ method: "GET", path: `${AS}/token` });
  assert.equal(error.status, 405);
  assert.equal(error.headers?.allow, "POST, OPTIONS");
  assert.equal((await reply({ ...tokenRequest("{}"), headers: { "content-type": "application/json" } })).status, 400);
});

test("the provider's token errors pass through and are explained in the log without the description [S7-5]", async () => {
  const url = `${TENANT}/oauth2/v2.0/token`;
  const body = {
    error: "invalid_client",
    error_description: "AADSTS7000218: The request body must contain client_secret; code=c",
  };
  const { env, reply } = await compile(tenantConfig, { [url]: { status: 401, body } });
  const answered = await reply(tokenRequest(CODE));
  assert.equal(answered.status, 401);
  assert.deepEqual(bodyOf(answered), body);
  const line = env.logged.find(({ message }) => message === "the identity provider rejected a token request");
  assert.match(String(line?.fields.mend), /set `clientSecret`/);
  assert.ok(!JSON.stringify(env.logged).includes("code=c"));
});

for (const status of [302, 307]) {
  test(`a redirect (${status}) of the provider is not followed [D6]`, async () => {
    const url = `${TENANT}/oauth2/v2.0/token`;
    const { refused } = await compile(tenantConfig, {
      [url]: { status, headers: { location: "http://127.0.0.1:1/" } },
    });
    assert.equal((await refused(tokenRequest(CODE))).status, 502);
  });
}

// Configuration

const tenantForms = [
  {
    issuer: "https://login.microsoftonline.com/tid/v2.0",
    keys: "https://login.microsoftonline.com/tid/discovery/v2.0/keys",
  },
  { issuer: "https://sts.windows.net/tid/", keys: "https://login.microsoftonline.com/tid/discovery/v2.0/keys" },
  {
    issuer: "https://login.microsoftonline.us/tid/v2.0",
    keys: "https://login.microsoftonline.us/tid/discovery/v2.0/keys",
  },
  { issuer: "http://localhost:9090/tid/v2.0", keys: "http://localhost:9090/tid/discovery/v2.0/keys" },
];
for (const { issuer, keys } of tenantForms) {
  test(`the tenant issuer ${issuer} has its keys at ${keys} [S2.2-8] [S4.3-3]`, async () => {
    const { run } = await compile({ ...tenantConfig, issuer }, { [keys]: { body: keySetOf(key) } });
    assert.equal((await run({ headers: bearer({ iss: issuer, aud: "client-1" }) })).reply, undefined);
  });
}

const inline = JSON.stringify(keySetOf(key));
const jwksForms: [string, unknown][] = [
  ["a URL", "http://mirror.internal/keys"],
  ["{url}", { url: "http://mirror.internal/keys" }],
  ["inline text", inline],
  ["an inline object", keySetOf(key)],
  ["{inline} with text", { inline }],
  ["{inline} with an object", { inline: keySetOf(key) }],
];
for (const [name, jwks] of jwksForms) {
  test(`jwks may be ${name} [S2.2-4]`, async () => {
    const { run } = await compile({ ...realmConfig, jwks }, { "http://mirror.internal/keys": { body: keySetOf(key) } });
    assert.equal((await run({ headers: bearer() })).reply, undefined);
  });
}

test("a key file that cannot be read fails the load at `jwks`", async () => {
  for (const jwks of ["./absent.json", { file: "./absent.json" }, "{ broken", { keys: [] }]) {
    await assert.rejects(compile({ ...realmConfig, jwks }), { name: "ConfigError", path: "jwks" });
  }
});

const { clientId: _clientId, ...tenantWithoutClient } = tenantConfig;
const badConfigs: Record<string, unknown> = {
  "two providers": { ...tenantConfig, provider: { idp_realm: {}, idp_tenant: {} } },
  "an unknown provider": { ...realmConfig, provider: { keycloak: {} } },
  "a provider with fields": { ...realmConfig, provider: { idp_realm: { x: 1 } } },
  "no audiences": { ...realmConfig, audiences: [] },
  "an unknown mode": { ...realmConfig, mode: "lenient" },
  "a tenant without clientId": tenantWithoutClient,
  "a tenant issuer without tenant": { ...tenantConfig, issuer: "https://login.microsoftonline.com/" },
  "a clientId for a realm": { ...realmConfig, clientId: "x" },
  "a clientSecret without provider": { ...realmConfig, provider: undefined, clientSecret: "x" },
  "no resource": { ...realmConfig, resourceMetadata: {} },
  "a resource that is no URL": { ...realmConfig, resourceMetadata: { resource: "/mcp" } },
  "an issuer that is no URL": { ...realmConfig, issuer: "realm" },
  "an unknown field": { ...realmConfig, extra: 1 },
};
for (const [name, config] of Object.entries(badConfigs)) {
  test(`the configuration is refused with ${name} [S2.2-3]`, () => {
    assert.equal(mcpAuthentication.schema.safeParse(config).success, false);
  });
}

const EITHER = "write `idp_realm: {}` or `idp_tenant: {}`, or omit `provider` for other providers";
const providers: [name: string, provider: unknown, message: string][] = [
  ["the realm provider's product name", "keycloak", "expected an object: write `provider: { idp_realm: {} }`"],
  ["a key by its product name", { Keycloak: {} }, "unknown field: write `provider: { idp_realm: {} }`"],
  ["the name without braces", "idp_realm", "expected an object: write `provider: { idp_realm: {} }`"],
  ["the tenant provider's product name", "entra", "expected an object: write `provider: { idp_tenant: {} }`"],
  ["its older name as a key", { azureAD: {} }, "unknown field: write `provider: { idp_tenant: {} }`"],
  ["a provider that needs no adapter", "auth0", `expected an object: ${EITHER}`],
  ["the same as a key", { okta: {} }, `unknown field: ${EITHER}`],
];
for (const [name, provider, message] of providers) {
  test(`${name} is refused with what to write`, () => {
    const parsed = mcpAuthentication.schema.safeParse({ ...realmConfig, provider });
    assert.deepEqual(
      parsed.error?.issues.map((issue) => [issue.path, issue.message]),
      [[["provider"], message]],
    );
  });
}

test("a provider of another type is refused as everywhere", () => {
  const [issue] = mcpAuthentication.schema.safeParse({ ...realmConfig, provider: 5 }).error?.issues ?? [];
  assert.match(issue?.message ?? "", /^Invalid input/);
});
