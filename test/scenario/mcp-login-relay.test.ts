/** A server with a login of its own behind a route without authentication: clients log in there themselves. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startGateway } from "../support/gateway.ts";
import { logIn } from "../support/identity/mcp-login.ts";
import { type Json, rawClient } from "../support/mcp/client.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { type OauthFixture, startOauthFixture } from "../support/mcp/oauth-fixture.ts";
import { shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";

function config(targets: readonly object[], policies: object = {}, settings: object = {}): string {
  return JSON.stringify({
    config: { logging: { level: "info,access=off" } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [{ name: "tools", policies, backends: [{ mcp: { targets, ...settings } }] }],
  });
}

function target(server: OauthFixture, more: object = { forwardHeaders: ["authorization"] }): object {
  return { name: "cal", mcp: { url: server.mcpUrl, ...more } };
}

async function setUp(t: TestContext, make: (server: OauthFixture) => string) {
  const server = await startOauthFixture();
  t.after(() => server.close());
  const gateway = await startGateway(make(server));
  t.after(() => gateway.close());
  return { server, gateway, url: `${gateway.url()}/mcp` };
}

const get = async (url: string): Promise<Json> => (await fetch(url)).json();

for (const generation of ["1.x", "2.x"] as const)
  for (const [what, settings] of [
    ["", {}],
    [", with prefixes and tool search", { prefixMode: "always", toolMode: "search" }],
  ] as const)
    test(`an SDK client ${generation} logs in at the server behind the gateway${what}`, async (t) => {
      const { server, url } = await setUp(t, (one) => config([target(one)], {}, settings));
      server.browserUser = "alice@cal";
      const { client, store } = await logIn(generation, url);
      const { tools } = await client.listTools();
      assert.ok(tools.length > 0);
      if (what === "") {
        const { content } = await client.callTool({ name: "whoami", arguments: {} });
        assert.deepEqual(content, [{ type: "text", text: "alice@cal" }]);
      }
      await client.close();
      assert.ok(server.tokens.has(store.tokens?.access_token ?? ""));
      const form = server.requests.find(({ path }) => path === "/token")?.form;
      assert.equal(form?.get("resource"), server.mcpUrl, "the token is for the server, not for the gateway");
    });

test("the challenge and the documents name the gateway, and only what must", async (t) => {
  const { server, gateway, url } = await setUp(t, (one) => config([target(one)]));
  const answer = await rawClient(url).post({
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  });
  assert.equal(answer.status, 401);
  const base = gateway.url();
  const place = `${base}/.well-known/oauth-protected-resource/mcp`;
  assert.equal(answer.headers.get("www-authenticate"), `Bearer resource_metadata="${place}"`);
  const resource = await get(place);
  assert.deepEqual(resource, { resource: url, authorization_servers: [url], scopes_supported: ["read", "write"] });
  const own = `${base}/.well-known/oauth-authorization-server/mcp`;
  const metadata = await get(own);
  assert.deepEqual(metadata, {
    issuer: url,
    authorization_endpoint: `${own}/authorize`,
    token_endpoint: `${own}/token`,
    registration_endpoint: `${server.url}/register`,
    revocation_endpoint: `${server.url}/revoke`,
    response_types_supported: ["code"],
    token_endpoint_auth_methods_supported: ["none"],
    code_challenge_methods_supported: ["S256"],
  });
  const modern = await modernPost(url, "tools/list");
  assert.equal(modern.status, 401);
  assert.match(modern.headers.get("www-authenticate") ?? "", /resource_metadata="http:\/\/127/);
});

test("a token that is taken back inside a session is a 401, and the session goes on with the next one", async (t) => {
  const { server, url } = await setUp(t, (one) => config([target(one)]));
  server.tokens.set("first", "alice").set("second", "alice");
  const client = rawClient(url);
  const { post } = client;
  let token = "first";
  client.post = (body, headers = {}) => post(body, { authorization: `Bearer ${token}`, ...headers });
  await client.initialize();
  assert.equal((await client.call("whoami")).result.content[0].text, "alice");
  server.tokens.delete("first");
  const call = { jsonrpc: "2.0", id: 7, method: "tools/call", params: { name: "whoami", arguments: {} } };
  const refused = await client.post(call);
  assert.equal(refused.status, 401);
  assert.match(refused.headers.get("www-authenticate") ?? "", /^Bearer resource_metadata=/);
  token = "second";
  assert.equal((await client.call("whoami")).result.content[0].text, "alice");
});

test("authorize and token pass what was sent, refuse what stands twice, and lead nowhere else", async (t) => {
  const { server, gateway } = await setUp(t, (one) => config([target(one)]));
  const own = `${gateway.url()}/.well-known/oauth-authorization-server/mcp`;
  const sent = await fetch(`${own}/authorize?client_id=a&state=x%20y&resource=${gateway.url()}/mcp&resource=other`, {
    redirect: "manual",
  });
  assert.equal(sent.status, 302);
  assert.equal(
    sent.headers.get("location"),
    `${server.url}/authorize?client_id=a&state=x%20y&resource=${encodeURIComponent(server.mcpUrl)}`,
  );
  assert.equal((await fetch(`${own}/authorize?state=a&state=b`, { redirect: "manual" })).status, 400);
  const post = (body: string, type = "application/x-www-form-urlencoded") =>
    fetch(`${own}/token`, { method: "POST", body, headers: { "content-type": type } });
  const wrong = await post("grant_type=refresh_token&refresh_token=no");
  assert.deepEqual([wrong.status, await wrong.json()], [400, { error: "invalid_grant" }]);
  assert.equal((await post("{}", "application/json")).status, 400);
  assert.equal((await post(`a=${"x".repeat(70_000)}`)).status, 413);
  assert.equal((await fetch(`${own}/token`)).status, 405);
  assert.equal((await fetch(`${own}/token`, { method: "OPTIONS" })).status, 204);
  assert.equal((await fetch(`${own}/client-registration`, { method: "POST" })).status, 404);
});

for (const [what, make] of [
  ["several servers", (one: OauthFixture) => config([target(one), { ...target(one), name: "second" }])],
  ["a server that gets no authorization header", (one: OauthFixture) => config([target(one, {})])],
  [
    "a route with optional authentication",
    (one: OauthFixture) => config([target(one)], { apiKey: { mode: "optional", keys: [{ key: "k" }] } }),
  ],
] as const)
  test(`${what}: no challenge and no documents`, async (t) => {
    const { gateway, url } = await setUp(t, make);
    const answer = await rawClient(url).post({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    });
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get("www-authenticate"), null);
    assert.match(answer.text, /answered with status 401/);
    assert.equal((await fetch(`${gateway.url()}/.well-known/oauth-protected-resource/mcp`)).status, 404);
  });

for (const when of ["after 10 minutes", "after a restart"] as const)
  test(`a server that names another authorization server ${when} gets no code and no refresh token of clients [D35]`, async (t) => {
    const [mcp, first, second] = [await startOauthFixture(), await startOauthFixture(), await startOauthFixture()];
    for (const server of [mcp, first, second]) t.after(() => server.close());
    mcp.authorizationServer = first;
    first.resource = mcp.mcpUrl;
    first.tokens.set("first", "alice");
    first.refreshTokens.set("rt-of-first", "alice");
    const folder = mkdtempSync(join(tmpdir(), "relay-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const text = config([target(mcp)]).replace('"config":{', `"config":{"store":{"folder":${JSON.stringify(folder)}},`);
    const clock = shiftedClock();
    let gateway = await startGateway(text, { clock });
    t.after(() => gateway.close());
    const place = "/.well-known/oauth-authorization-server/mcp";
    const post = (body: string) =>
      fetch(`${gateway.url()}${place}/token`, { method: "POST", body: new URLSearchParams(body) });
    assert.equal((await post("grant_type=refresh_token&refresh_token=rt-of-first")).status, 200);
    first.refreshTokens.set("rt-of-first", "alice");
    const move = async (): Promise<void> => {
      if (when === "after 10 minutes") return clock.advance(601_000);
      await gateway.close();
      gateway = await startGateway(text, { clock });
    };
    mcp.authorizationServer = second;
    await move();
    for (const grant of ["grant_type=refresh_token&refresh_token=rt-of-first", "grant_type=authorization_code&code=c"])
      assert.equal((await post(grant)).status, 503);
    assert.equal((await fetch(`${gateway.url()}${place}`)).status, 503);
    assert.deepEqual(second.requests, []);
    await gateway.logged("names another authorization server");
    mcp.authorizationServer = first;
    await move();
    assert.equal((await post("grant_type=refresh_token&refresh_token=rt-of-first")).status, 200);
  });

test("clients are not sent to other endpoints than those of the first authorization server [D35]", async (t) => {
  const elsewhere = "http://127.0.0.1:9";
  const { server, gateway } = await setUp(t, (one) => config([target(one)]));
  const own = `${gateway.url()}/.well-known/oauth-authorization-server/mcp`;
  const others = ["introspection", "pushed_authorization_request", "device_authorization", "userinfo", "end_session"];
  server.serverMetadata = {
    ...Object.fromEntries(others.map((name) => [`${name}_endpoint`, `${elsewhere}/${name}`])),
    backchannel_authentication_endpoint: `${server.url}/ciba`,
    mtls_endpoint_aliases: { token_endpoint: `${elsewhere}/token` },
    registration_endpoint: undefined,
  };
  const names = Object.keys(await get(own)).filter((name) => /endpoint/.test(name));
  assert.deepEqual(names.sort(), [
    "authorization_endpoint",
    "backchannel_authentication_endpoint",
    "revocation_endpoint",
    "token_endpoint",
    "token_endpoint_auth_methods_supported",
  ]);
});

for (const name of ["authorization", "token", "revocation", "registration"] as const)
  test(`a server whose metadata names another ${name} endpoint later has no login until it is accepted [D35]`, async (t) => {
    const first = await startOauthFixture();
    t.after(() => first.close());
    const server = await startOauthFixture();
    t.after(() => server.close());
    // The server is its own issuer, with endpoints of another one.
    const endpoint = { authorization: "authorize", token: "token", revocation: "revoke", registration: "register" };
    const endpoints = Object.fromEntries(
      Object.entries(endpoint).map(([one, path]) => [`${one}_endpoint`, `${first.url}/${path}`]),
    );
    server.serverMetadata = endpoints;
    const clock = shiftedClock();
    const gateway = await startGateway(config([target(server)]), { clock });
    t.after(() => gateway.close());
    const own = `${gateway.url()}/.well-known/oauth-authorization-server/mcp`;
    const statusFor = async (metadata: Record<string, unknown>): Promise<number> => {
      server.serverMetadata = metadata;
      clock.advance(601_000);
      return (await fetch(own)).status;
    };
    assert.equal(await statusFor(endpoints), 200);
    for (const moved of [`${first.url}/tenants/evil/${endpoint[name]}`, `${server.url}/${endpoint[name]}`])
      assert.equal(await statusFor({ ...endpoints, [`${name}_endpoint`]: moved }), 503, moved);
    assert.equal(await statusFor(endpoints), 200);
  });
