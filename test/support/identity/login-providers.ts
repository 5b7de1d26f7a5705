import { checkLogin } from "../../../src/identity/login/login-check.ts";
import type { LoginLeg, LoginPolicy } from "../../../src/identity/login/login-leg.ts";
import { fakeClock } from "../fake-clock.ts";
import { type Answer, createFakeFetch, type FakeFetch } from "./fake-fetch.ts";
import { createSigningKey, keySetOf, START_MS, signToken } from "./tokens.ts";

export const REALM = "http://localhost:8080/realms/mcp";
export const TENANT = "https://login.microsoftonline.com/tid";
export const CALLBACK = "http://127.0.0.1:33418/callback";
export const key = createSigningKey("ES256", "k1");
export const REGISTRATION = `${REALM}/clients-registrations/openid-connect`;
export const AUTHORIZE = `${REALM}/protocol/openid-connect/auth`;

export const realm: LoginPolicy = {
  issuer: REALM,
  audiences: ["gateway"],
  provider: { idp_realm: {} },
  resourceMetadata: { resource: "http://localhost:3000/mcp" },
};
export const tenant: LoginPolicy = {
  issuer: `${TENANT}/v2.0`,
  audiences: ["app-1"],
  provider: { idp_tenant: {} },
  clientId: "app-1",
  resourceMetadata: realm.resourceMetadata,
};

export function providers(answers: Record<string, Answer> = {}): FakeFetch {
  const document = {
    issuer: REALM,
    jwks_uri: `${REALM}/protocol/openid-connect/certs`,
    authorization_endpoint: AUTHORIZE,
    registration_endpoint: REGISTRATION,
    code_challenge_methods_supported: ["S256"],
    authorization_response_iss_parameter_supported: true,
  };
  const client = { client_id: "c1", registration_access_token: "rat-1", registration_client_uri: `${REGISTRATION}/c1` };
  const fake = createFakeFetch({
    [`${REALM}/.well-known/openid-configuration`]: { body: document },
    [document.jwks_uri]: { body: keySetOf(key) },
    [REGISTRATION]: { status: 201, body: client },
    [`${REALM}/clients-registrations/default/c1`]: { body: { registrationAccessToken: "rat-2" } },
    [`${REGISTRATION}/c1`]: { status: 204 },
    [`${TENANT}/v2.0/.well-known/openid-configuration`]: { body: { issuer: `${TENANT}/v2.0` } },
    [`${TENANT}/discovery/v2.0/keys`]: { body: keySetOf(key) },
    [`${TENANT}/oauth2/v2.0/token`]: { status: 400, body: { error: "invalid_grant" } },
    ...answers,
  });
  // The authorize URL has a query, so it is answered by its beginning.
  const plainFetch = fake.fetch;
  const authorize = answers[AUTHORIZE] ?? { status: 302, headers: { location: `${CALLBACK}?error=login_required` } };
  return Object.assign(fake, {
    fetch: (request: Parameters<typeof plainFetch>[0]) => {
      if (request.url.startsWith(`${AUTHORIZE}?`)) fake.answers.set(request.url, authorize);
      return plainFetch(request);
    },
  });
}

export async function legs(policy: LoginPolicy, fake = providers(), token?: string): Promise<Map<string, LoginLeg>> {
  const found = new Map<string, LoginLeg>();
  const options = {
    policy,
    fetch: fake.fetch,
    clock: fakeClock(),
    readFile: () => JSON.stringify(keySetOf(key)),
    token,
  };
  for await (const leg of checkLogin(options)) found.set(leg.leg, leg);
  return found;
}

export function tokenOf(claims: Record<string, unknown>): string {
  return signToken({ key, claims: { iss: REALM, aud: "gateway", sub: "alice", exp: START_MS / 1000 + 60, ...claims } });
}
