import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AS,
  BASE,
  compile,
  key,
  plainConfig,
  REALM,
  realmConfig,
  registrationOf,
  tokenRequest,
} from "../../../test/support/identity/mcp-authentication.ts";
import { bodyOf } from "../../../test/support/identity/policy-env.ts";
import { createSigningKey, keySetOf, START_MS, signToken } from "../../../test/support/identity/tokens.ts";
import { mcpAuthentication } from "./policy.ts";

const ISSUER = plainConfig.issuer;
const DOCUMENT = {
  issuer: ISSUER,
  authorization_endpoint: `${ISSUER}/authorize`,
  token_endpoint: `${ISSUER}/token`,
  jwks_uri: `${ISSUER}/keys`,
};
const CLIENT = "https://agent.example.com/oauth/client.json";
const CALLBACK = "http://127.0.0.1/callback";
const ANSWERS = {
  "https://id.example.com/.well-known/oauth-authorization-server/oauth": { body: DOCUMENT },
  [DOCUMENT.jwks_uri]: { body: keySetOf(key) },
  [DOCUMENT.token_endpoint]: { body: { access_token: "a" } },
  [CLIENT]: { body: { client_id: CLIENT, redirect_uris: [CALLBACK, "https://agent.example.com/cb"] } },
  "https://agent.example.com/other.json": { body: { client_id: CLIENT, redirect_uris: [CALLBACK] } },
};
const own = { ...plainConfig, clientId: "own-1" };
const withDocuments = { ...own, clientSecret: "planted", clientMetadataHosts: ["agent.example.com"] };

test("without registration at the provider, the gateway returns the operator's client", async () => {
  const { document, reply } = await compile(own, ANSWERS);
  const metadata = await document(`${AS}/mcp`);
  assert.equal(metadata.registration_endpoint, `${BASE}${AS}/mcp/client-registration`);
  assert.equal(metadata.authorization_endpoint, DOCUMENT.authorization_endpoint, "nothing to add: not proxied");
  assert.equal(metadata.client_id_metadata_document_supported, undefined);
  const answer = await reply(registrationOf({ redirect_uris: ["http://127.0.0.1:9/cb"], scope: "x" }));
  assert.equal(answer.status, 201);
  assert.deepEqual(bodyOf(answer), {
    client_id: "own-1",
    token_endpoint_auth_method: "none",
    redirect_uris: ["http://127.0.0.1:9/cb"],
  });
});

test("the secret is added to the operator's client only", async () => {
  const { reply, env } = await compile({ ...own, clientSecret: "planted" }, ANSWERS);
  for (const [sent, has] of [
    ["grant_type=authorization_code&client_id=own-1&code=x&resource=a", true],
    ["grant_type=authorization_code&client_id=other&code=x", false],
    ["grant_type=client_credentials&client_id=own-1", false],
  ] as const) {
    assert.equal((await reply(tokenRequest(sent))).status, 200);
    const body = env.provider.requests.at(-1)?.body?.toString() ?? "";
    assert.ok(body.startsWith(sent));
    assert.equal(body.includes("client_secret=planted"), has, sent);
  }
});

test("the secret is not sent to a token endpoint without TLS at another origin [D6]", async () => {
  const document = { ...DOCUMENT, token_endpoint: "http://10.0.0.1/token" };
  const { refused, env } = await compile(
    { ...own, clientSecret: "planted" },
    {
      ...ANSWERS,
      "https://id.example.com/.well-known/oauth-authorization-server/oauth": { body: document },
      [document.token_endpoint]: { body: { access_token: "a" } },
    },
  );
  const error = await refused(tokenRequest("grant_type=authorization_code&client_id=own-1&code=x"));
  assert.equal(error.code, "backend_response_invalid");
  assert.ok(env.provider.requests.every(({ method }) => method !== "POST"));
});

const authorize = (query: string) => ({ method: "GET", path: `${AS}/mcp/authorize`, query });
const asked = (client: string, redirect: string): string =>
  new URLSearchParams({ client_id: client, redirect_uri: redirect, state: "s" }).toString();

test("a client id metadata document maps to the operator's client, in both steps", async () => {
  const { document, reply, env } = await compile(withDocuments, ANSWERS);
  const metadata = await document(`${AS}/mcp`);
  assert.equal(metadata.client_id_metadata_document_supported, true);
  assert.equal(metadata.authorization_endpoint, `${BASE}${AS}/mcp/authorize`);
  for (const redirect of ["http://127.0.0.1:33418/callback", "https://agent.example.com/cb"]) {
    const answer = await reply(authorize(asked(CLIENT, redirect)));
    assert.equal(answer.status, 302);
    const location = new URL(answer.headers.get("location") ?? "");
    assert.equal(location.origin + location.pathname, DOCUMENT.authorization_endpoint);
    assert.equal(location.searchParams.get("client_id"), "own-1");
    assert.equal(location.searchParams.get("redirect_uri"), redirect);
  }
  assert.equal(env.provider.requests.filter(({ url }) => url === CLIENT).length, 1, "the document is kept");
  await reply(tokenRequest(`grant_type=authorization_code&client_id=${encodeURIComponent(CLIENT)}&code=x`));
  const form = new URLSearchParams(env.provider.requests.at(-1)?.body?.toString());
  assert.deepEqual([form.get("client_id"), form.get("client_secret")], ["own-1", "planted"]);
});

for (const [what, query] of [
  ["an address that the document does not name", asked(CLIENT, "https://evil.example.com/cb")],
  ["a longer address on loopback", asked(CLIENT, "http://127.0.0.1:1/callback/../x")],
  ["another host that looks like loopback", asked(CLIENT, "http://127.0.0.1.evil.example.com/callback")],
  ["a document at another host", asked("https://evil.example.com/client.json", CALLBACK)],
  ["a document at a host with the name in front", asked("https://agent.example.com.evil.com/c.json", CALLBACK)],
  ["a document at another port", asked("https://agent.example.com:8443/oauth/client.json", CALLBACK)],
  ["credentials in the URL", asked("https://a@agent.example.com/oauth/client.json", CALLBACK)],
  ["a query in the URL", asked(`${CLIENT}?x=1`, CALLBACK)],
  ["dots in the URL", asked("https://agent.example.com/x/../oauth/client.json", CALLBACK)],
  ["a document about another client", asked("https://agent.example.com/other.json", CALLBACK)],
  ["a document that is not there", asked("https://agent.example.com/none.json", CALLBACK)],
  ["two ids", `${asked(CLIENT, CALLBACK)}&client_id=own-1`],
  ["two addresses", `${asked(CLIENT, CALLBACK)}&redirect_uri=https://evil.example.com/cb`],
  ["two addresses in another case", `${asked(CLIENT, CALLBACK)}&Redirect_Uri=https://evil.example.com/cb`],
  ["no address", `client_id=${encodeURIComponent(CLIENT)}`],
] as const)
  test(`a client id metadata document: rejects ${what}`, async () => {
    const { reply } = await compile(withDocuments, ANSWERS);
    const answer = await reply(authorize(query));
    assert.equal(answer.status, 400);
    assert.equal(answer.headers.get("location"), undefined);
  });

const agentKey = createSigningKey("ES256", "k1");
const further = { ...realmConfig, issuers: [{ issuer: "agents", jwks: keySetOf(agentKey), audiences: ["mcp"] }] };
const tokenBy = (signer: typeof key, claims: object) => ({
  headers: {
    authorization: `Bearer ${signToken({ key: signer, claims: { sub: "a", exp: START_MS / 1000 + 60, ...claims } })}`,
  },
});

test("further issuers are accepted with their own keys and audiences; the document names one server", async () => {
  const { run, refused, document } = await compile(further);
  assert.equal((await run(tokenBy(agentKey, { iss: "agents", aud: "mcp" }))).exchange.attributes.jwt?.iss, "agents");
  assert.equal((await run(tokenBy(key, { iss: REALM, aud: "gateway" }))).exchange.attributes.jwt?.iss, REALM);
  for (const [signer, claims] of [
    [key, { iss: "agents", aud: "mcp" }],
    [agentKey, { iss: REALM, aud: "gateway" }],
    [agentKey, { iss: "agents", aud: "gateway" }],
  ] as const)
    assert.equal((await refused(tokenBy(signer, claims))).code, "invalid_token");
  const metadata = await document("/.well-known/oauth-protected-resource/mcp");
  assert.deepEqual(metadata.authorization_servers, [`${BASE}/mcp`]);
});

for (const [what, config] of [
  ["an issuer twice", { ...further, issuers: [{ issuer: REALM, jwks: keySetOf(key) }] }],
  ["a further issuer without keys", { ...further, issuers: [{ issuer: "agents" }] }],
  ["a secret without a client", { ...plainConfig, clientSecret: "x" }],
  ["documents without a client", { ...plainConfig, clientMetadataHosts: ["agent.example.com"] }],
  ["documents from everywhere", { ...own, clientMetadataHosts: ["*"] }],
] as const)
  test(`rejects a config with ${what}`, () => {
    assert.equal(mcpAuthentication.schema.safeParse(config).success, false);
  });
