import assert from "node:assert/strict";
import { test } from "node:test";
import { createExchange, createTestEnv, type RequestWords } from "../../../test/support/identity/policy-env.ts";
import { createSigningKey, keySetOf, START_MS, signToken } from "../../../test/support/identity/tokens.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
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
  assert.equal(hooks.request?.(exchange), undefined);
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
  assert.equal(run({ headers: { authorization: `Bearer ${token()}` } }).facts.jwt?.sub, "alice");
});

test("both refusals say how to authenticate", () => {
  assert.equal(refusal({}).headers?.["www-authenticate"], "Bearer");
  const error = refusal({ headers: { authorization: `Bearer ${token({ exp: START_MS / 1000 - 61 })}` } });
  assert.equal(
    error.headers?.["www-authenticate"],
    'Bearer error="invalid_token", error_description="the token is expired"',
  );
  assert.equal(error.status, 401);
});

test("the token may stand in another header or a query parameter", () => {
  const header = { location: { header: { name: "x-token" } } };
  assert.deepEqual(run({ headers: { "x-token": token() } }, header).credentialHeaders, ["x-token"]);
  const query = { location: { queryParameter: { name: "token" } } };
  assert.deepEqual(run({ query: `token=${token()}` }, query).credentialQuery, ["token"]);
  assert.equal(refusal({ headers: { authorization: `Bearer ${token()}` } }, header).code, "unauthorized");
});

test("required claims are required", () => {
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
  await hooks.request?.(exchange);
  assert.equal(exchange.facts.jwt?.sub, "alice");
});

for (const changes of [{ audiences: [] }, { issuer: "x" }, { mode: "none" }, { jwks: 1 }, { extra: 1 }]) {
  test(`rejects the config with ${JSON.stringify(changes)}`, () => {
    assert.equal(jwtAuth.schema.safeParse({ ...config, ...changes }).success, false);
  });
}
