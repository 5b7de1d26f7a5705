/**
 * The tenant's proxied login, and the provider's responses.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AS,
  bearer,
  CODE,
  compile,
  realmConfig,
  realmDocument,
  TENANT,
  tenantConfig,
  tenantDocument,
  tokenRequest,
} from "../../../test/support/identity/mcp-authentication.ts";
import { bodyOf, type RequestWords } from "../../../test/support/identity/policy-env.ts";

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
  test(`authorize forwards ${sent} without resource and byte for byte [D9] [V11] [S4.3-4] [S7-12]`, async () => {
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

test("rejects a repeated parameter at authorize and token [D10]", async () => {
  const { env, reply } = await compile(tenantConfig);
  const authorize = await reply({ method: "GET", path: `${AS}/authorize`, query: "state=a&State=b" });
  const token = await reply(tokenRequest("grant_type=client_credentials&grant_type=authorization_code"));
  for (const answered of [authorize, token]) {
    assert.equal(answered.status, 400);
    assert.equal((bodyOf(answered) as { error: string }).error, "invalid_request");
  }
  assert.ok(env.provider.requests.every(({ method }) => method !== "POST"));
});

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
  test(`a parameter without a value counts as absent: ${empty}`, async () => {
    const sent = new URLSearchParams((await forwardedToken(`${CODE}&${empty}`)).body);
    assert.deepEqual(sent.getAll("client_secret"), ["planted-secret"]);
  });
}

test("Basic with an empty password counts as absent, and its client ID moves to the form", async () => {
  const basic = (id: string) => ({ authorization: `Basic ${Buffer.from(`${id}:`).toString("base64")}` });
  for (const form of [CODE, CODE.replace("&client_id=client-1", "")]) {
    const sent = await forwardedToken(form, basic("client-1"));
    const parameters = new URLSearchParams(sent.body);
    assert.deepEqual(parameters.getAll("client_id"), ["client-1"]);
    assert.deepEqual(parameters.getAll("client_secret"), ["planted-secret"]);
    assert.equal(sent.headers?.authorization, undefined);
  }
  const other = await forwardedToken(CODE.replace("client_id=client-1&", ""), basic("other"));
  assert.equal(new URLSearchParams(other.body).get("client_secret"), null);
  const hostile = await forwardedToken(CODE.replace("client_id=client-1&", ""), basic("client-1&scope=x"));
  assert.equal(new URLSearchParams(hostile.body).get("scope"), null);
});

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

test("the code verifier is forwarded unchanged, and none is invented [D12]", async () => {
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

test("the token endpoint accepts only POST with a form [D13]", async () => {
  const { refused, reply } = await compile(tenantConfig);
  const error = await refused({ method: "GET", path: `${AS}/token` });
  assert.equal(error.status, 405);
  assert.equal(error.headers?.allow, "POST, OPTIONS");
  assert.equal((await reply({ ...tokenRequest("{}"), headers: { "content-type": "application/json" } })).status, 400);
});

test("the provider's token errors are forwarded and explained in the log without the description [S7-5] [S7-14]", async () => {
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
  assert.match(String(line?.fields.hint), /set `clientSecret`/);
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

interface ProviderError {
  readonly name: string;
  readonly config: unknown;
  readonly endpoint: string;
  readonly request: RequestWords;
  readonly status: number;
  readonly body: { readonly error: string; readonly error_description: string };
  readonly hint: RegExp;
}

/** Errors of identity providers that operators meet. */
const providerErrors: readonly ProviderError[] = [
  {
    name: "a realm that requires TLS [S7-9]",
    config: realmConfig,
    endpoint: realmDocument.registration_endpoint,
    request: {
      path: `${AS}/client-registration`,
      headers: { "content-type": "application/json" },
      body: '{"redirect_uris":["http://localhost:1/cb"]}',
    },
    status: 403,
    body: { error: "invalid_request", error_description: "HTTPS required" },
    hint: /https/,
  },
  {
    name: "a user whose account is not set up [S7-10]",
    config: tenantConfig,
    endpoint: tenantDocument.token_endpoint,
    request: tokenRequest(CODE),
    status: 400,
    body: { error: "invalid_grant", error_description: "Account is not fully set up" },
    hint: /email/,
  },
  {
    name: "a code of a single-page application [S7-13]",
    config: tenantConfig,
    endpoint: tenantDocument.token_endpoint,
    request: tokenRequest(CODE),
    status: 400,
    body: { error: "invalid_request", error_description: "AADSTS9002327: may only be redeemed cross-origin" },
    hint: /Mobile and desktop applications/,
  },
];
for (const { name, config, endpoint, request, status, body, hint } of providerErrors) {
  test(`the provider's error reaches the client and is explained in the log: ${name}`, async () => {
    const { env, reply } = await compile(config, { [endpoint]: { status, body } });
    const answered = await reply(request);
    assert.equal(answered.status, status);
    assert.deepEqual(bodyOf(answered), body);
    assert.ok(env.logged.some(({ fields }) => hint.test(String(fields.hint))));
  });
}

for (const aud of ["api://client-1", "client-1"]) {
  test(`a tenant token for ${aud} is accepted where both forms are listed [S5-13]`, async () => {
    const { run } = await compile(tenantConfig);
    assert.equal((await run({ headers: bearer({ iss: tenantConfig.issuer, aud }) })).reply, undefined);
  });
}
