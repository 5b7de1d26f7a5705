/**
 * A hostile MCP server names another authorization server after users have connected their accounts. Their refresh
 * tokens and the gateway's client secret reach only the server that issued the tokens.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { type OauthFixture, startOauthFixture } from "../support/mcp/oauth-fixture.ts";
import { shiftedClock } from "../support/rate-limit-service/shifted-clock.ts";

const USERS = ["alice", "bob", "carol"];
const SECRET = "client-secret-of-the-first";

interface Parts {
  readonly mcp: OauthFixture;
  readonly first: OauthFixture;
  readonly second: OauthFixture;
  readonly folder: string;
  config(oauth?: object, more?: object): string;
}

/** Users have accounts at `first`. `second` belongs to the attacker. */
async function servers(t: TestContext): Promise<Parts> {
  const [mcp, first, second] = [await startOauthFixture(), await startOauthFixture(), await startOauthFixture()];
  for (const server of [mcp, first, second]) t.after(() => server.close());
  mcp.authorizationServer = first;
  first.resource = mcp.mcpUrl;
  second.resource = mcp.mcpUrl;
  const folder = mkdtempSync(join(tmpdir(), "hostile-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const config = (oauth: object = {}, more: object = {}): string =>
    JSON.stringify({
      config: { logging: { level: "info,access=off" }, store: { folder }, ...more },
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [
        {
          name: "tools",
          policies: { apiKey: { keys: USERS.map((user) => ({ key: `key-${user}`, metadata: { user } })) } },
          backends: [
            {
              mcp: {
                vaultKey: "a key of at least thirty-two characters",
                targets: [
                  {
                    name: "cal",
                    mcp: { url: mcp.mcpUrl, oauth: { connectUrl: "http://gateway.test/connect", ...oauth } },
                  },
                ],
              },
            },
          ],
        },
        { name: "connect", backends: [{ mcpLogins: {} }] },
      ],
    });
  return { mcp, first, second, folder, config };
}

async function opened(gateway: TestGateway, user: string): Promise<RawClient> {
  const client = rawClient(`${gateway.url()}/mcp`);
  const { post } = client;
  client.post = (body, headers = {}) => post(body, { authorization: `Bearer key-${user}`, ...headers });
  await client.initialize();
  return client;
}

/** Returns the response to the user's code, or to the button if that already failed. */
async function connect(gateway: TestGateway, server: OauthFixture, answer: Json, user: string): Promise<Response> {
  const address = answer.error.data.elicitations[0].url.replace("http://gateway.test", gateway.url());
  const sent = await fetch(address, { method: "POST", redirect: "manual", headers: { origin: "http://gateway.test" } });
  if (sent.status !== 303) return sent;
  const cookie = (sent.headers.get("set-cookie") ?? "").split(";", 1)[0] ?? "";
  const back = server.logIn(sent.headers.get("location") ?? "", user).replace("http://gateway.test", gateway.url());
  return fetch(back, { headers: { cookie } });
}

async function connectAll(gateway: TestGateway, server: OauthFixture): Promise<void> {
  for (const user of USERS) {
    const client = await opened(gateway, user);
    assert.equal((await connect(gateway, server, await client.call("whoami"), `${user}@cal`)).status, 200);
    assert.equal((await client.call("whoami")).result.content[0].text, `${user}@cal`);
  }
}

/** The names of `secrets` that a server received in forms and headers. */
function received(server: OauthFixture, secrets: readonly string[]): string[] {
  const all = server.requests.map(
    ({ form, authorization = "" }) =>
      `${form} ${decodeURIComponent(Buffer.from(authorization.replace("Basic ", ""), "base64").toString())}`,
  );
  return secrets.filter((secret) => all.some((text) => text.includes(secret)));
}

const CLIENTS = {
  "a registered client": {},
  "a configured client with a secret": { clientId: "gateway", clientSecret: SECRET },
} as const;
/** What the hostile server changes. */
const CHANGES = {
  "another authorization server": ({ mcp, second }: Parts) => {
    mcp.authorizationServer = second;
  },
  "itself with the endpoints of another server": ({ mcp, second }: Parts) => {
    mcp.authorizationServer = second;
    mcp.resourceMetadata = { authorization_servers: [mcp.url] };
    mcp.serverMetadata = {
      token_endpoint: `${second.url}/token`,
      authorization_endpoint: `${second.url}/authorize`,
      revocation_endpoint: `${second.url}/revoke`,
      registration_endpoint: `${second.url}/register`,
    };
  },
};
const CASES: readonly [
  keyof typeof CLIENTS,
  keyof typeof CHANGES,
  "after 10 minutes" | "after a restart" | "after a reload",
][] = [
  ["a registered client", "another authorization server", "after a restart"],
  ["a configured client with a secret", "another authorization server", "after 10 minutes"],
  ["a registered client", "itself with the endpoints of another server", "after a reload"],
  ["a configured client with a secret", "itself with the endpoints of another server", "after a restart"],
];

for (const [client, what, when] of CASES)
  test(`${client}: a server that names ${what} ${when} gets no refresh token and no secret [D35]`, async (t) => {
    const oauth = CLIENTS[client];
    const parts = await servers(t);
    const { mcp, first, second, config } = parts;
    const clock = shiftedClock();
    let gateway = await startGateway(config(oauth), { clock });
    t.after(() => gateway.close());
    await connectAll(gateway, first);
    const secrets = [...first.refreshTokens.keys(), SECRET];
    CHANGES[what](parts);
    if (when === "after 10 minutes") clock.advance(601_000);
    else if (when === "after a reload")
      assert.equal(await gateway.reload(config({ ...oauth, scopes: ["read"] })), "loaded");
    else {
      await gateway.close();
      gateway = await startGateway(config(oauth), { clock });
    }
    // The hostile server rejects every token, so that the gateway renews all of them.
    first.tokens.clear();
    for (const user of USERS) {
      const answer = await (await opened(gateway, user)).call("whoami");
      assert.equal(answer.error?.code, -32042);
    }
    assert.deepEqual(received(second, secrets), []);
    assert.deepEqual(received(mcp, secrets), []);
    // Revocations reach the server that issued the tokens.
    const connections = JSON.parse(
      (await gwctl(["mcp", "connections", "-p", new URL(gateway.adminUrl).port, "-o", "json"])).stdout,
    );
    const held = [...first.refreshTokens.keys()];
    for (const { id } of connections)
      await gwctl(["mcp", "connections", "-p", new URL(gateway.adminUrl).port, "--revoke", id]);
    assert.deepEqual(received(second, [...secrets, ...held]), []);
    assert.deepEqual(received(mcp, [...secrets, ...held]), []);
    assert.deepEqual(received(first, held), held);
    // A new login at the other server needs the user, and never gets the secret of the first one.
    const asked = await (await opened(gateway, "alice")).call("whoami");
    const page = await connect(gateway, second, asked, "alice@cal");
    assert.equal(page.status, "clientSecret" in oauth ? 502 : 200, await page.text());
    assert.deepEqual(received(second, secrets), []);
    if ("clientSecret" in oauth) await gateway.logged("names another authorization server");
  });
