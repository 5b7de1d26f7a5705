/**
 * Client registration.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AS,
  compile,
  REALM,
  realmConfig,
  realmDocument,
  registrationOf,
  tenantConfig,
} from "../../../test/support/identity/mcp-authentication.ts";
import { bodyOf, type RequestWords } from "../../../test/support/identity/policy-env.ts";

const REGISTRATION = {
  client_name: "Inspector",
  redirect_uris: ["http://localhost:6274/oauth/callback"],
  grant_types: ["authorization_code"],
  response_types: ["code"],
  token_endpoint_auth_method: "none",
};
test("realm registration forwards the response's status and body, without other headers [D4] [S2.5-4] [S4.3-2]", async () => {
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

test("fields that the realm's registration policies reject are removed: scopes and the vendor's pages", async () => {
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

test("a realm that sends iss is told to omit it for the client, and the client gets the new registration token", async () => {
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

test("if the realm cannot omit iss, the client stays registered and the log explains the consequence", async () => {
  const client = { client_id: "generated", registration_access_token: "rat-1" };
  const { env, reply } = await compile(realmConfig, {
    [realmDocument.registration_endpoint]: { status: 201, body: client },
    [EXCLUSION]: { status: 403 },
  });
  assert.deepEqual(bodyOf(await reply(registrationOf(REGISTRATION))), client);
  const line = env.logged.find(({ message }) => message === "client registration could not be completed");
  assert.match(String(line?.fields.hint), /Exclude Issuer From Authentication Response/);
  assert.ok(!JSON.stringify(env.logged).includes("rat-1"));
});

test("a realm that sends no iss gets no update", async () => {
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

test("the realm's rejection is forwarded, and the log says how to fix it [S7-5] [S7-11]", async () => {
  const text = "Policy 'Trusted Hosts' rejected request to client-registration service. Details: Host not trusted.";
  const body = { error: "insufficient_scope", error_description: text };
  const { env, reply } = await compile(realmConfig, { [realmDocument.registration_endpoint]: { status: 403, body } });
  const answered = await reply(registrationOf(REGISTRATION));
  assert.equal(answered.status, 403);
  assert.deepEqual(bodyOf(answered), body);
  const line = env.logged.find(({ message }) => message === "the identity provider rejected a client registration");
  assert.match(String(line?.fields.hint), /Trusted Hosts/);
});

test("a realm without a registration endpoint in its metadata is called at the standard path", async () => {
  const { registration_endpoint: _, ...body } = realmDocument;
  const url = `${REALM}/clients-registrations/openid-connect`;
  const { reply } = await compile(realmConfig, {
    [`${REALM}/.well-known/openid-configuration`]: { body },
    [url]: { status: 201, body: { client_id: "x" } },
  });
  assert.equal((await reply(registrationOf(REGISTRATION))).status, 201);
});

test("tenant registration returns the configured client and echoes only known fields [D3] [S2.2-5] [S2.5-5] [S4.3-5] [S5-4] [S2.5-7]", async () => {
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
  test(`registration rejects ${name} [D1] [D2]`, async () => {
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
  test(`registration accepts the redirect URI ${uri} [D2]`, async () => {
    const answered = await (await compile(tenantConfig)).reply(
      registrationOf({ ...REGISTRATION, redirect_uris: [uri] }),
    );
    assert.equal(answered.status, 201);
  });
}

test("rejects a body over 64 KiB and the 121st registration of a client in a minute [D1] [D5]", async () => {
  const { env, refused, reply } = await compile(tenantConfig);
  assert.equal((await refused(registrationOf({ client_name: "x".repeat(65 * 1024) }))).code, "body_too_large");
  for (let i = 1; i < 120; i++) await reply(registrationOf(REGISTRATION));
  const error = await refused(registrationOf(REGISTRATION));
  assert.equal(error.code, "rate_limited");
  assert.equal(error.headers?.["retry-after"], "60");
  await env.clock.advance(60_000);
  assert.equal((await reply(registrationOf(REGISTRATION))).status, 201);
});

test("rejects the 601st registration of a minute that would reach the provider, and counts no invalid ones [D5]", async () => {
  const url = realmDocument.registration_endpoint;
  const { env, refused, reply } = await compile(realmConfig, { [url]: { status: 201, body: { client_id: "x" } } });
  const from = (client: number) => ({ ...registrationOf(REGISTRATION), source: `192.0.2.${client}` });
  for (let i = 0; i < 600; i++) {
    assert.equal((await reply(from(i % 10))).status, 201);
    if (i < 50) assert.equal((await reply({ ...registrationOf("no JSON"), source: `192.0.2.${i % 10}` })).status, 400);
  }
  const error = await refused(from(11));
  assert.equal(error.code, "rate_limited");
  assert.match(error.detail ?? "", /600 registration requests/);
  assert.equal(env.provider.requests.filter((request) => request.url === url).length, 600);
});
