import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createFakeFetch } from "../../../test/support/identity/fake-fetch.ts";
import { plain } from "../providers/plain.ts";
import type { Discovered } from "../providers/provider.ts";
import type { LoginLeg } from "./login-leg.ts";
import { ownClientLegs } from "./trial-login.ts";

const ISSUER = "https://id.example.com";
const CALLBACK = "http://127.0.0.1:33418/callback";
const discovered: Discovered = {
  issuer: ISSUER,
  authorization_endpoint: `${ISSUER}/authorize`,
  token_endpoint: `${ISSUER}/token`,
  authorization_response_iss_parameter_supported: true,
};

/** The steps for the operator's client at a provider whose login page redirects to this address. */
async function legsOf(location: string | undefined, metadata: object = {}): Promise<Map<string, LoginLeg>> {
  const fake = createFakeFetch({ [`${ISSUER}/token`]: { status: 400, body: { error: "invalid_grant" } } });
  const policy = {
    issuer: ISSUER,
    audiences: ["gateway"],
    clientId: "own-1",
    resourceMetadata: { resource: "http://localhost:3000/mcp", ...metadata },
  };
  const options = {
    policy,
    clock: fakeClock(),
    readFile: () => "",
    token: undefined,
    fetch: (request: Parameters<typeof fake.fetch>[0]) => {
      if (request.url.startsWith(`${ISSUER}/authorize?`)) {
        assert.equal(new URL(request.url).searchParams.get("client_id"), "own-1");
        const answer = location === undefined ? { status: 400 } : { status: 302, headers: { location } };
        fake.answers.set(request.url, answer);
      }
      return fake.fetch(request);
    },
  };
  const legs = new Map<string, LoginLeg>();
  for await (const leg of ownClientLegs(options, plain(policy), discovered)) legs.set(leg.leg, leg);
  return legs;
}

test("the operator's client: a callback with the provider's `iss` does not pass", async () => {
  const sends = `${CALLBACK}?error=login_required&iss=${encodeURIComponent(ISSUER)}`;
  const leg = (await legsOf(sends)).get("authorize");
  assert.equal(leg?.ok, false);
  assert.match(leg?.hint ?? "", /redirectUris: \[loopback\]/);
  assert.equal((await legsOf(sends, { authorizationServers: [ISSUER] })).get("authorize")?.ok, true);
  assert.equal((await legsOf(`${CALLBACK}?error=login_required`)).get("authorize")?.ok, true);
});

test("the operator's client: redirects that cannot be checked are reported as such", async () => {
  const leg = (await legsOf(undefined)).get("authorize");
  assert.equal(leg?.ok, undefined);
  assert.match(leg?.message ?? "", /redirect URI.*`iss`/);
});
