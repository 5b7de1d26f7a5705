import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bearer,
  compile,
  key,
  PRM_URL,
  REALM,
  realmConfig,
  realmDocument,
  tenantConfig,
} from "../../../test/support/identity/mcp-authentication.ts";
import { createExchange, type RequestWords } from "../../../test/support/identity/policy-env.ts";
import { keySetOf } from "../../../test/support/identity/tokens.ts";
import type { GatewayError } from "../../core/errors.ts";
import { mcpAuthentication } from "./policy.ts";

// Tokens

for (const method of ["GET", "POST", "DELETE", "PUT", "OPTIONS"]) {
  test(`${method} without a token gets exactly the 401 of the spec [S5-2] [S5-8]`, async () => {
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
  assert.deepEqual(exchange.attributes.jwt?.realm_access, { roles: ["admin"] });
  assert.deepEqual(exchange.credentials.headers, ["authorization"]);
  assert.deepEqual(exchange.credentials.presented, { header: "authorization", value: headers.authorization });
});

test("a cached token is accepted without a promise", async () => {
  const { hooks } = await compile(realmConfig);
  const headers = bearer();
  await hooks.access?.head?.(createExchange({ headers }));
  assert.equal(hooks.access?.head?.(createExchange({ headers })), undefined);
});

test("a rejected token gets a generic error for the client and an exact one for the operator [S7-6]", async () => {
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

test("rejects a v1 token under a v2 issuer with a hint [A7]", async () => {
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

test("the scheme is case-insensitive, and two authorization headers are rejected [A5]", async () => {
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

test("an invalid token in permissive mode is neither readable nor forwarded", async () => {
  const { run } = await compile({ ...realmConfig, mode: "permissive" });
  const { exchange } = await run({ headers: bearer({ aud: "other" }) });
  assert.equal(exchange.attributes.jwt, undefined);
  assert.deepEqual(exchange.credentials.headers, ["authorization"]);
  assert.equal(exchange.credentials.presented, undefined);
});

test("a realm's keys are at the standard path below its issuer, whatever its discovery document lists [S4.3-1] [S2.2-9] [S2.2-10]", async () => {
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
  "two names of one provider": { ...realmConfig, provider: { idp_realm: {}, keycloak: {} } },
  "an unknown provider": { ...realmConfig, provider: { unknown: {} } },
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
  test(`rejects a configuration with ${name} [S2.2-3]`, () => {
    assert.equal(mcpAuthentication.schema.safeParse(config).success, false);
  });
}

const EITHER = "write `keycloak: {}` or `entra: {}`, or omit `provider` for other providers";
const providers: [name: string, provider: unknown, message: string][] = [
  ["the realm provider's product name", "keycloak", "expected an object: write `provider: { keycloak: {} }`"],
  ["a key by its product name", { Keycloak: {} }, "unknown field: write `provider: { keycloak: {} }`"],
  ["the name without braces", "idp_realm", "expected an object: write `provider: { idp_realm: {} }`"],
  ["the tenant provider's product name", "entra", "expected an object: write `provider: { entra: {} }`"],
  ["its older name as a key", { azureAD: {} }, "unknown field: write `provider: { entra: {} }`"],
  ["a provider that needs no adapter", "auth0", "expected an object: write `provider: { auth0: {} }`"],
  ["a key of a provider that has no name here", { pingOne: {} }, `unknown field: ${EITHER}`],
];
for (const [name, provider, message] of providers) {
  test(`rejects ${name} with a suggestion`, () => {
    const parsed = mcpAuthentication.schema.safeParse({ ...realmConfig, provider });
    assert.deepEqual(
      parsed.error?.issues.map((issue) => [issue.path, issue.message]),
      [[["provider"], message]],
    );
  });
}

test("rejects a provider of another type with the usual error", () => {
  const [issue] = mcpAuthentication.schema.safeParse({ ...realmConfig, provider: 5 }).error?.issues ?? [];
  assert.match(issue?.message ?? "", /^Invalid input/);
});

const aliases: [name: string, adapter: object | undefined][] = [
  ["keycloak", { idp_realm: {} }],
  ["idp_realm", { idp_realm: {} }],
  ["auth0", undefined],
  ["okta", undefined],
  ["authentik", undefined],
  ["descope", undefined],
];
for (const [name, adapter] of aliases) {
  test(`provider ${name} selects ${adapter === undefined ? "plain discovery" : "the adapter"} and is shown by its name in the specification`, () => {
    const written = { ...realmConfig, provider: { [name]: {} } };
    const { provider: _provider, ...others } = realmConfig;
    assert.deepEqual(mcpAuthentication.schema.parse(written).provider, adapter);
    assert.deepEqual(
      mcpAuthentication.shown?.(written),
      adapter === undefined ? others : { ...others, provider: adapter },
    );
  });
}

test("provider entra selects the tenant adapter, which needs a clientId", () => {
  const entra = { ...tenantConfig, provider: { entra: {} } };
  assert.deepEqual(mcpAuthentication.schema.parse(entra).provider, { idp_tenant: {} });
  const [issue] = mcpAuthentication.schema.safeParse({ ...entra, clientId: undefined }).error?.issues ?? [];
  assert.match(issue?.message ?? "", /needs the `clientId` of an app registration/);
});
