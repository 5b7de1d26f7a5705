import assert from "node:assert/strict";
import { test } from "node:test";
import { createExchange, createTestEnv, type RequestWords } from "../../../test/support/identity/policy-env.ts";
import { createSigningKey, keySetOf, START_MS, signToken } from "../../../test/support/identity/tokens.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { withholdCredentials } from "../../identity/access/withheld-credentials.ts";
import { jwtAuth } from "./policy.ts";

const ISSUER = "https://id.example.com";
const key = createSigningKey("ES256", "k1");
const config = { issuer: ISSUER, audiences: ["llm"], jwks: keySetOf(key) };

function token(claims: Record<string, unknown> = {}): string {
  return signToken({ key, claims: { iss: ISSUER, aud: "llm", sub: "alice", exp: START_MS / 1000 + 60, ...claims } });
}

function run(words: RequestWords, changes: Record<string, unknown> = {}): Exchange {
  const hooks = jwtAuth.compile(jwtAuth.schema.parse({ ...config, ...changes }), createTestEnv());
  const exchange = createExchange(words);
  assert.equal(hooks.access?.head?.(exchange), undefined);
  return exchange;
}

function refusal(words: RequestWords, changes: Record<string, unknown> = {}): GatewayError {
  try {
    run(words, changes);
  } catch (error) {
    return error as GatewayError;
  }
  throw new Error("was admitted");
}

test("a valid token's claims become readable", () => {
  assert.equal(run({ headers: { authorization: `Bearer ${token()}` } }).attributes.jwt?.sub, "alice");
});

test("both 401 responses carry a challenge", () => {
  assert.equal(refusal({}).headers?.["www-authenticate"], "Bearer");
  const error = refusal({ headers: { authorization: `Bearer ${token({ exp: START_MS / 1000 - 61 })}` } });
  assert.equal(
    error.headers?.["www-authenticate"],
    'Bearer error="invalid_token", error_description="the token is expired"',
  );
  assert.equal(error.status, 401);
});

test("the token can be in another header or a query parameter", () => {
  const header = { location: { header: { name: "x-token" } } };
  assert.deepEqual(run({ headers: { "x-token": token() } }, header).credentials.headers, ["x-token"]);
  const query = { location: { queryParameter: { name: "token" } } };
  assert.deepEqual(run({ query: `token=${token()}` }, query).credentials.query, ["token"]);
  assert.equal(refusal({ headers: { authorization: `Bearer ${token()}` } }, header).code, "unauthorized");
});

test("the token can be in a cookie, which backends do not get", () => {
  const cookie = { location: { cookie: { name: "session" } } };
  const found = run({ headers: { cookie: `theme=dark; session=${token()}; lang=en` } }, cookie);
  assert.equal(found.attributes.jwt?.sub, "alice");
  withholdCredentials(found, found.request);
  assert.equal(found.request.headers.get("cookie"), "theme=dark; lang=en");
  assert.match(found.credentials.presented?.value ?? "", /^Bearer eyJ/);
  assert.equal(refusal({ headers: { cookie: "theme=dark" } }, cookie).code, "unauthorized");
  assert.equal(refusal({ headers: { cookie: "xsession=a; session=" } }, cookie).code, "unauthorized");
  const twice = refusal({ headers: { cookie: `session=${token()}; session=${token({ sub: "bob" })}` } }, cookie);
  assert.deepEqual([twice.code, twice.detail], ["invalid_token", "more than one cookie session"]);
  assert.equal(refusal({ headers: { authorization: `Bearer ${token()}` } }, cookie).code, "unauthorized");
});

test("the token can be the value of an expression, and no copy of it reaches backends", () => {
  const location = { expression: 'request.headers["x-tokens"].split(",")[1]' };
  const text = token();
  const words = {
    headers: { "x-tokens": `a,${text}`, "x-copy": `<${text}>`, "x-other": "1", cookie: `a=b; copy=${text}` },
    query: `q=1&copy=${text}`,
  };
  const found = run(words, { location });
  assert.equal(found.attributes.jwt?.sub, "alice");
  withholdCredentials(found, found.request);
  assert.equal(found.request.headers.get("x-other"), "1");
  assert.equal(found.request.headers.get("x-tokens"), undefined);
  assert.equal(found.request.headers.get("x-copy"), undefined);
  assert.equal(found.request.headers.get("cookie"), "a=b");
  assert.equal(found.request.query, "q=1");
  assert.equal(refusal({}, { location }).code, "unauthorized");
  assert.equal(refusal({ headers: { "x-tokens": "a" } }, { location }).code, "unauthorized");
  assert.equal(refusal({ headers: { "x-tokens": "a,b" } }, { location }).code, "invalid_token");
  assert.equal(refusal({}, { location: { expression: "1" } }).code, "invalid_token");
});

test("an expression cannot read the body, and a page can attach cookies", () => {
  const location = { expression: "string(request.body)" };
  const parsed = jwtAuth.schema.parse({ ...config, location });
  assert.throws(() => jwtAuth.compile(parsed, createTestEnv()), /cannot read the body/);
  const requires = (place: unknown): boolean | undefined =>
    jwtAuth.requiresCredential?.(jwtAuth.schema.parse({ ...config, location: place }));
  assert.equal(requires({ header: { name: "x-token" } }), true);
  assert.equal(requires({ cookie: { name: "session" } }), false);
  assert.equal(requires({ expression: "request.path" }), false);
});

test("rejects a token without a required claim", () => {
  const changes = { jwtValidationOptions: { requiredClaims: ["email"] } };
  assert.match(refusal({ headers: { authorization: `Bearer ${token()}` } }, changes).detail ?? "", /claim email/);
});

test("without jwks the keys come from the issuer's own metadata", async () => {
  const env = createTestEnv();
  const url = `${ISSUER}/.well-known/oauth-authorization-server`;
  env.provider.answers.set(url, { body: { issuer: ISSUER, jwks_uri: `${ISSUER}/keys` } });
  env.provider.answers.set(`${ISSUER}/keys`, { body: keySetOf(key) });
  const { jwks: _, ...discovered } = config;
  const hooks = jwtAuth.compile(jwtAuth.schema.parse(discovered), env);
  const exchange = createExchange({ headers: { authorization: `Bearer ${token()}` } });
  await hooks.access?.head?.(exchange);
  assert.equal(exchange.attributes.jwt?.sub, "alice");
});

const otherKey = createSigningKey("ES256", "k1");
const providers = [
  { issuer: ISSUER, audiences: ["llm"], jwks: keySetOf(key) },
  { issuer: "agents.internal", audiences: ["agents"], jwks: keySetOf(otherKey) },
];
const several = { issuer: undefined, audiences: undefined, jwks: undefined, providers };

function tokenBy(signer: typeof key, claims: Record<string, unknown>): RequestWords {
  const text = signToken({ key: signer, claims: { sub: "alice", exp: START_MS / 1000 + 60, ...claims } });
  return { headers: { authorization: `Bearer ${text}` } };
}

test("accepts tokens of several issuers, one of which is not a URL, and keeps their users apart", () => {
  const first = run(tokenBy(key, { iss: ISSUER, aud: "llm" }), several);
  const second = run(tokenBy(otherKey, { iss: "agents.internal", aud: "agents" }), several);
  assert.notEqual(first.identity.principal, second.identity.principal);
});

for (const [what, signer, claims] of [
  ["signed by another accepted issuer", otherKey, { iss: ISSUER, aud: "llm" }],
  ["with the audience of another accepted issuer", key, { iss: ISSUER, aud: "agents" }],
  ["of no accepted issuer, signed by the first", key, { iss: "https://else.example.com", aud: "llm" }],
  ["without an issuer", key, { aud: "llm" }],
  ["with a list of issuers", key, { iss: [ISSUER], aud: "llm" }],
] as const)
  test(`several issuers: rejects a token ${what}`, () => {
    assert.equal(refusal(tokenBy(signer, claims), several).code, "invalid_token");
  });

test("a token of an unknown issuer: the records name the issuers, not the keys", () => {
  const stranger = createSigningKey("ES256", "else");
  const error = refusal(tokenBy(stranger, { iss: `${ISSUER}/`, aud: "llm" }), several);
  assert.equal(error.message, "the token's issuer is not accepted");
  assert.match(error.detail ?? "", /expected one of \[.*, agents\.internal\].*trailing slash/);
  assert.match(refusal(tokenBy(stranger, { iss: "https://else.example.com", aud: "llm" })).detail ?? "", /issuer is/);
  const unknown = refusal(tokenBy(stranger, { iss: ISSUER, aud: "llm" }), several);
  assert.equal(unknown.message, "the token's key is not known");
});

for (const changes of [
  { ...several, issuer: ISSUER },
  { ...several, providers: [] },
  { ...several, providers: [...providers, ...providers] },
  { ...several, providers: [{ issuer: "agents.internal", audiences: ["a"] }] },
  { issuer: "agents.internal", jwks: undefined },
  { issuer: undefined },
  { audiences: undefined },
])
  test(`rejects the config with ${JSON.stringify(changes).slice(0, 90)}`, () => {
    assert.equal(jwtAuth.schema.safeParse({ ...config, ...changes }).success, false);
  });

for (const changes of [{ audiences: [] }, { mode: "none" }, { jwks: 1 }, { extra: 1 }]) {
  test(`rejects the config with ${JSON.stringify(changes)}`, () => {
    assert.equal(jwtAuth.schema.safeParse({ ...config, ...changes }).success, false);
  });
}
