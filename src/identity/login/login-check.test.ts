import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { Answer, FakeFetch } from "../../../test/support/identity/fake-fetch.ts";
import {
  AUTHORIZE,
  CALLBACK,
  legs,
  providers,
  REALM,
  REGISTRATION,
  realm,
  TENANT,
  tenant,
  tokenOf,
} from "../../../test/support/identity/login-providers.ts";
import { START_MS } from "../../../test/support/identity/tokens.ts";
import { checkLogin } from "./login-check.ts";
import type { LoginLeg, LoginPolicy } from "./login-leg.ts";

test("a correctly configured realm passes every step, and the trial client is deleted with the new token", async () => {
  const fake = providers();
  const found = await legs(realm, fake, tokenOf({}));
  assert.deepEqual([...found.keys()], ["metadata", "keys", "pkce", "registration", "authorize", "token"]);
  for (const leg of found.values()) assert.equal(leg.ok, true, `${leg.leg}: ${leg.message}`);
  const last = fake.requests.at(-1);
  assert.equal(last?.method, "DELETE");
  assert.equal(last?.headers?.authorization, "Bearer rat-2");
});

test("a correctly configured tenant passes every step", async () => {
  const found = await legs(tenant);
  assert.deepEqual([...found.keys()], ["metadata", "keys", "pkce", "registration", "token endpoint", "token"]);
  const { token, ...others } = Object.fromEntries(found);
  for (const leg of Object.values(others)) assert.equal(leg.ok, true, `${leg.leg}: ${leg.message}`);
  assert.equal(token?.ok, undefined, "without a token nothing is known of it");
  assert.match(token?.message ?? "", /^not checked: use --token-file/);
});

const trusted = "Policy 'Trusted Hosts' rejected request to client-registration service. Details: Host not trusted.";
const faults: {
  name: string;
  policy: LoginPolicy;
  answers?: Record<string, Answer>;
  token?: string;
  leg: string;
  hint: RegExp;
}[] = [
  {
    name: "trusted hosts are closed",
    policy: realm,
    answers: { [REGISTRATION]: { status: 403, body: { error_description: trusted } } },
    leg: "registration",
    hint: /Trusted Hosts/,
  },
  {
    name: "the realm requires TLS",
    policy: realm,
    answers: { [REGISTRATION]: { status: 403, body: { error_description: "HTTPS required" } } },
    leg: "registration",
    hint: /Require SSL/,
  },
  {
    name: "the issuer differs",
    policy: realm,
    answers: { [`${REALM}/.well-known/openid-configuration`]: { body: { issuer: "http://other" } } },
    leg: "metadata",
    hint: /the exact issuer of the provider/,
  },
  {
    name: "the realm does not exist",
    policy: realm,
    answers: { [`${REALM}/.well-known/openid-configuration`]: { status: 404 } },
    leg: "metadata",
    hint: /realm's name/,
  },
  {
    name: "the realm keeps sending iss",
    policy: realm,
    answers: { [AUTHORIZE]: { status: 302, headers: { location: `${CALLBACK}?error=login_required&iss=x` } } },
    leg: "authorize",
    hint: /Exclude Issuer/,
  },
  {
    name: "a scope is not known",
    policy: { ...realm, resourceMetadata: { ...realm.resourceMetadata, scopesSupported: ["nope"] } },
    answers: { [AUTHORIZE]: { status: 302, headers: { location: `${CALLBACK}?error=invalid_scope` } } },
    leg: "authorize",
    hint: /scopesSupported/,
  },
  {
    name: "the provider's clock is wrong",
    policy: realm,
    answers: {
      [`${REALM}/.well-known/openid-configuration`]: {
        headers: { date: new Date(START_MS + 3_600_000).toUTCString() },
        body: { issuer: REALM },
      },
    },
    leg: "clock",
    hint: /NTP/,
  },
  {
    name: "a tenant's issuer has a slash too many",
    policy: { ...tenant, issuer: `${TENANT}/v2.0/` },
    leg: "metadata",
    hint: /exactly these slashes/,
  },
  {
    name: "there are no keys",
    policy: realm,
    answers: { [`${REALM}/protocol/openid-connect/certs`]: { body: { keys: [] } } },
    leg: "keys",
    hint: /jwks/,
  },
  {
    name: "the audience mapper is missing",
    policy: realm,
    token: tokenOf({ aud: "account" }),
    leg: "token",
    hint: /audience mapper/,
  },
  {
    name: "the app registration is confidential",
    policy: tenant,
    answers: {
      [`${TENANT}/oauth2/v2.0/token`]: {
        status: 401,
        body: { error: "invalid_client", error_description: "AADSTS7000218: …" },
      },
    },
    leg: "token endpoint",
    hint: /clientSecret/,
  },
  {
    name: "the redirect URI is on the single-page platform",
    policy: tenant,
    answers: {
      [`${TENANT}/oauth2/v2.0/token`]: {
        status: 400,
        body: { error: "invalid_request", error_description: "AADSTS9002327: …" },
      },
    },
    leg: "token endpoint",
    hint: /Mobile and desktop/,
  },
  {
    name: "v1 tokens meet a v2 issuer",
    policy: tenant,
    token: tokenOf({ iss: "https://sts.windows.net/tid/", aud: "app-1" }),
    leg: "token",
    hint: /v1 access tokens/,
  },
];
for (const { name, policy, answers, token, leg, hint } of faults) {
  test(`says how to fix it when ${name} [S5-11]`, async () => {
    const found = (await legs(policy, providers(answers), token)).get(leg);
    assert.equal(found?.ok, false);
    assert.match(found?.hint ?? "", hint);
  });
}

test("an unreachable provider fails its steps and does not throw", async () => {
  const fake = providers();
  fake.down = true;
  const found = await legs(realm, fake);
  assert.match(found.get("metadata")?.hint ?? "", /can reach it/);
  assert.equal(found.get("keys")?.ok, false);
});

test("registers like each known client, as the provider receives it", async () => {
  const bodies = (fake: FakeFetch): Record<string, unknown>[] =>
    fake.requests
      .filter(({ url, method }) => url === REGISTRATION && method === "POST")
      .map(({ body }) => JSON.parse(body?.toString() ?? ""));
  const scopes = { ...realm.resourceMetadata, scopesSupported: ["tools"] };
  const fitted = providers();
  await legs({ ...realm, resourceMetadata: scopes }, fitted);
  assert.equal(bodies(fitted).length, 1, "the gateway makes all of them the same");
  const plain = providers();
  const found = await legs({ ...plainPolicy, resourceMetadata: scopes }, plain);
  assert.deepEqual(
    bodies(plain).map(({ scope, client_uri: uri }) => [scope, uri !== undefined]),
    [
      [undefined, false],
      ["tools", false],
      ["tools", true],
    ],
  );
  assert.equal(found.get("registration")?.ok, true);
  assert.equal(plain.requests.filter(({ method }) => method === "DELETE").length, 3, "all are taken back");
});

test("checks the gateway's own document and cors if a gateway is configured", async () => {
  const place = "http://localhost:3000/.well-known/oauth-protected-resource/mcp";
  const ask = async (fake: FakeFetch, hasCors: boolean) => {
    const found = new Map<string, LoginLeg>();
    const options = { policy: realm, fetch: fake.fetch, clock: fakeClock(), readFile: () => "", gateway: { hasCors } };
    for await (const leg of checkLogin(options)) found.set(leg.leg, leg);
    return found;
  };
  const good = await ask(providers({ [place]: { body: { resource: "http://localhost:3000/mcp" } } }), true);
  assert.deepEqual([good.get("resource")?.ok, good.get("cors")?.ok], [true, true]);
  const elsewhere = await ask(providers({ [place]: { body: { resource: "http://other/mcp" } } }), false);
  assert.deepEqual([elsewhere.get("resource")?.ok, elsewhere.get("cors")?.ok], [false, undefined]);
  assert.equal((await ask(providers(), true)).get("resource")?.ok, false);
  const down = providers();
  down.down = true;
  assert.equal((await ask(down, true)).get("resource")?.ok, undefined);
});

const plainPolicy: LoginPolicy = { ...realm, provider: undefined };

test("without readable metadata, neither the discovered keys nor a signature are checked", async () => {
  const fake = providers();
  fake.down = true;
  const found = await legs(plainPolicy, fake, tokenOf({}));
  assert.equal(found.get("metadata")?.ok, false);
  assert.deepEqual(found.get("keys"), {
    leg: "keys",
    ok: undefined,
    message: "not checked: the metadata with their address could not be read",
  });
  assert.equal(found.get("token")?.ok, undefined);
  assert.match(found.get("token")?.message ?? "", /issuer, audience and times fit, but there are no keys/);
});

test("reports metadata without keys", async () => {
  const answers = { [`${REALM}/.well-known/openid-configuration`]: { body: { issuer: REALM } } };
  const found = (await legs(plainPolicy, providers(answers))).get("keys");
  assert.deepEqual([found?.ok, found?.message], [false, "the metadata has no jwks_uri"]);
});

test("a token with the wrong audience fails even without keys", async () => {
  const fake = providers();
  fake.down = true;
  assert.equal((await legs(plainPolicy, fake, tokenOf({ aud: "other" }))).get("token")?.ok, false);
});

test("an invalid key set URL fails its step", async () => {
  const found = (await legs({ ...realm, jwks: "http://" })).get("keys");
  assert.equal(found?.ok, false);
});

test("keys from a file are read from the file", async () => {
  const found = await legs({ ...realm, jwks: { file: "keys.json" } });
  assert.match(found.get("keys")?.message ?? "", /1 usable at keys.json/);
});
