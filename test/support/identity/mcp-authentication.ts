/**
 * Compiles the policy `mcpAuthentication` for a realm, a tenant or a plain provider whose responses the test
 * specifies.
 */
import assert from "node:assert/strict";
import type { GatewayError } from "../../../src/core/errors.ts";
import type { Exchange } from "../../../src/core/exchange.ts";
import type { Reply } from "../../../src/core/reply.ts";
import { mcpAuthentication } from "../../../src/policies/mcp-authentication/policy.ts";
import type { Answer } from "./fake-fetch.ts";
import { bodyOf, createExchange, createTestEnv, type RequestWords } from "./policy-env.ts";
import { createSigningKey, keySetOf, START_MS, signToken } from "./tokens.ts";

export const REALM = "http://localhost:8080/realms/mcp";
export const TENANT = "http://localhost:9090/11111111-2222-3333-4444-555555555555";
export const BASE = "http://localhost:3000";
export const PRM_URL = `${BASE}/.well-known/oauth-protected-resource/mcp`;
export const AS = "/.well-known/oauth-authorization-server";
export const key = createSigningKey("ES256", "k1");

export const realmConfig = {
  mode: "strict",
  issuer: REALM,
  audiences: ["gateway"],
  provider: { idp_realm: {} },
  resourceMetadata: { resource: `${BASE}/mcp`, scopesSupported: ["tools"], bearerMethodsSupported: ["header"] },
};
export const tenantConfig = {
  mode: "strict",
  issuer: `${TENANT}/v2.0`,
  audiences: ["api://client-1", "client-1"],
  provider: { idp_tenant: {} },
  clientId: "client-1",
  clientSecret: "planted-secret",
  resourceMetadata: { resource: `${BASE}/mcp` },
};
export const plainConfig = { ...realmConfig, issuer: "https://id.example.com/oauth", provider: undefined };

export const realmDocument = {
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
export const tenantDocument = {
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

/** The compiled policy with a provider that gives these answers. */
export async function compile(config: unknown, answers: Record<string, Answer> = {}) {
  const env = createTestEnv();
  for (const [url, answer] of Object.entries({ ...ANSWERS, ...answers })) env.provider.answers.set(url, answer);
  const parsed = mcpAuthentication.schema.parse(config);
  const hooks = mcpAuthentication.compile(parsed, env);
  await env.clock.advance(0);
  const run = async (words: RequestWords): Promise<{ reply: Reply | undefined; exchange: Exchange }> => {
    const exchange = createExchange(words);
    return { reply: await hooks.access?.head?.(exchange), exchange };
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

export function bearer(claims: Record<string, unknown> = {}): Record<string, string> {
  const exp = START_MS / 1000 + 300;
  return {
    authorization: `Bearer ${signToken({ key, claims: { iss: REALM, aud: "gateway", sub: "alice", exp, ...claims } })}`,
  };
}

export function registrationOf(body: unknown, type = "application/json"): RequestWords {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return {
    path: `${AS}/mcp/client-registration`,
    headers: { "content-type": type, cookie: "a=b", authorization: "x" },
    body: text,
  };
}

export function tokenRequest(body: string, headers: Record<string, string> = {}): RequestWords {
  return { path: `${AS}/token`, headers: { "content-type": "application/x-www-form-urlencoded", ...headers }, body };
}

export const CODE = "grant_type=authorization_code&client_id=client-1&code=c&code_verifier=v";
