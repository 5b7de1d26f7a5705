import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AS,
  BASE,
  compile,
  key,
  plainConfig,
  tokenRequest,
} from "../../../test/support/identity/mcp-authentication.ts";
import { keySetOf } from "../../../test/support/identity/tokens.ts";
import { mcpAuthentication } from "./policy.ts";

const ISSUER = plainConfig.issuer;
const DOCUMENT = {
  issuer: ISSUER,
  authorization_endpoint: `${ISSUER}/authorize`,
  token_endpoint: `${ISSUER}/token`,
  jwks_uri: `${ISSUER}/keys`,
  authorization_response_iss_parameter_supported: true,
  pushed_authorization_request_endpoint: `${ISSUER}/par`,
};
const CLIENT = "https://agent.example.com/oauth/client.json";
const ANSWERS = {
  "https://id.example.com/.well-known/oauth-authorization-server/oauth": { body: DOCUMENT },
  [DOCUMENT.jwks_uri]: { body: keySetOf(key) },
  [DOCUMENT.token_endpoint]: { body: { access_token: "a" } },
  [CLIENT]: { body: { client_id: CLIENT, redirect_uris: ["https://agent.example.com/cb?x=1"] } },
};
const OWN = `${BASE}${AS}/mcp/callback`;
const config = {
  ...plainConfig,
  clientId: "own-1",
  clientMetadataHosts: ["agent.example.com"],
  redirectUris: ["loopback", "https://app.example.com/cb"],
};

const asked = (changes: Record<string, string | undefined> = {}): string => {
  const all = {
    response_type: "code",
    client_id: "own-1",
    redirect_uri: "http://127.0.0.1:33418/callback",
    state: "mine &=",
    code_challenge: "c",
    code_challenge_method: "S256",
    ...changes,
  };
  const given = Object.entries(all).filter((pair): pair is [string, string] => pair[1] !== undefined);
  return new URLSearchParams(given).toString();
};
const authorize = (query: string, suffix = "/mcp") => ({ method: "GET", path: `${AS}${suffix}/authorize`, query });
const back = (parameters: Record<string, string>) => ({
  method: "GET",
  path: `${AS}/mcp/callback`,
  query: new URLSearchParams(parameters).toString(),
});

for (const [what, redirect, client, suffix] of [
  ["on loopback", "http://localhost:5000/any/path?q=1", "own-1", "/mcp"],
  ["on loopback, IPv6", "http://[::1]:5000/", "own-1", ""],
  ["that is listed", "https://app.example.com/cb", "own-1", "/mcp"],
  ["of a metadata document", "https://agent.example.com/cb?x=1", CLIENT, "/mcp"],
] as const)
  test(`a login redirects to a client ${what}, with the gateway as the issuer`, async () => {
    const { reply, document } = await compile(config, ANSWERS);
    const metadata = await document(`${AS}${suffix}`);
    assert.equal(metadata.authorization_response_iss_parameter_supported, true);
    assert.equal(metadata.pushed_authorization_request_endpoint, undefined);
    const sent = await reply(authorize(asked({ redirect_uri: redirect, client_id: client }), suffix));
    const login = new URL(sent.headers.get("location") ?? "");
    assert.equal(login.origin + login.pathname, DOCUMENT.authorization_endpoint);
    assert.equal(login.searchParams.get("redirect_uri"), OWN);
    assert.equal(login.searchParams.get("client_id"), "own-1");
    const state = login.searchParams.get("state") ?? "";
    const answer = await reply(back({ code: "the code", state, iss: ISSUER, session_state: "not for clients" }));
    assert.equal(answer.status, 302);
    const location = new URL(answer.headers.get("location") ?? "");
    assert.ok(location.href.startsWith(redirect));
    const { code, state: own, iss, session_state } = Object.fromEntries(location.searchParams);
    assert.deepEqual([code, own, iss, session_state], ["the code", "mine &=", metadata.issuer, undefined]);
  });

for (const [what, query] of [
  ["another address", asked({ redirect_uri: "https://evil.example.com/cb" })],
  ["an address that begins like loopback", asked({ redirect_uri: "http://127.0.0.1.evil.example.com/" })],
  ["loopback as a user name", asked({ redirect_uri: "http://localhost@evil.example.com/" })],
  ["loopback with a user name", asked({ redirect_uri: "http://evil@localhost/" })],
  ["a fragment", asked({ redirect_uri: "http://localhost/#x" })],
  ["a longer address than the listed one", asked({ redirect_uri: "https://app.example.com/cb/../x" })],
  ["a script", asked({ redirect_uri: "javascript:alert(1)//localhost" })],
  ["no address", asked({ redirect_uri: undefined })],
  ["two addresses", `${asked()}&Redirect_URI=https%3A%2F%2Fevil.example.com`],
  ["another client", asked({ client_id: "other" })],
  ["no PKCE", asked({ code_challenge: undefined })],
  ["plain PKCE", asked({ code_challenge_method: "plain" })],
  ["a request object", asked({ request: "x.y.z" })],
  ["a kept request", asked({ request_uri: "urn:x" })],
  ["an answer as a form", asked({ response_mode: "form_post" })],
  ["a huge state", asked({ state: "x".repeat(3000) })],
] as const)
  test(`rejects a login with ${what}`, async () => {
    const { reply } = await compile(config, ANSWERS);
    const answer = await reply(authorize(query));
    assert.equal(answer.status, 400);
    assert.equal(answer.headers.get("location"), undefined);
  });

test("rejects a callback with a missing, modified or expired state, or from another issuer", async () => {
  const { reply, env } = await compile(config, ANSWERS);
  const location = (await reply(authorize(asked()))).headers.get("location") ?? "";
  const state = new URL(location).searchParams.get("state") ?? "";
  const [payload = "", signature] = state.split(".");
  const evil = JSON.stringify(["https://evil.example.com/", null, "", 9e9]);
  for (const parameters of [
    { code: "c", iss: ISSUER },
    { code: "c", iss: ISSUER, state: `${Buffer.from(evil).toString("base64url")}.${signature}` },
    { code: "c", iss: ISSUER, state: `${payload}x.${signature}` },
    { code: "c", iss: "https://evil.example.com", state },
    { code: "c", state },
  ])
    assert.equal((await reply(back(parameters))).status, 400, JSON.stringify(parameters));
  // Signed by the same key for another resource.
  const other = await compile({ ...config, resourceMetadata: { resource: `${BASE}/other` } }, ANSWERS);
  const there = { ...back({ code: "c", iss: ISSUER, state }), path: `${AS}/other/callback` };
  assert.equal((await other.reply(there)).status, 400);
  const denied = await reply(back({ error: "access_denied", iss: ISSUER, state }));
  assert.equal(new URL(denied.headers.get("location") ?? "").searchParams.get("error"), "access_denied");
  await env.clock.advance(3_601_000);
  assert.equal((await reply(back({ code: "c", iss: ISSUER, state }))).status, 400);
});

test("the code is exchanged with the redirect URI that the provider knows", async () => {
  const { reply, env } = await compile(config, ANSWERS);
  const form = "grant_type=authorization_code&client_id=own-1&code=x&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fcb";
  await reply(tokenRequest(form));
  const sent = new URLSearchParams(env.provider.requests.at(-1)?.body?.toString());
  assert.deepEqual([sent.get("redirect_uri"), sent.get("code")], [OWN, "x"]);
});

for (const [what, wrong] of [
  ["without a client", { ...plainConfig, redirectUris: ["loopback"] }],
  ["with an adapter", { ...config, provider: { idp_tenant: {} }, clientMetadataHosts: undefined }],
  ["with a fragment", { ...config, redirectUris: ["https://app.example.com/#x"] }],
  ["empty", { ...config, redirectUris: [] }],
  ["with another word", { ...config, redirectUris: ["anywhere"] }],
] as const)
  test(`redirectUris ${what} is rejected`, () => {
    assert.equal(mcpAuthentication.schema.safeParse(wrong).success, false);
  });
