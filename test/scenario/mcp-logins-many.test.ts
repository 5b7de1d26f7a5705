/**
 * Many users with accounts at a server that wants logins: each uses the own one, and nobody another's, by whatever is
 * shown: session ids, tokens of others that were changed, subjects that look alike, tickets, also after a restart.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startGateway, type TestGateway } from "../support/gateway.ts";
import { createSigningKey, keySetOf, signToken } from "../support/identity/tokens.ts";
import { rawClient } from "../support/mcp/client.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { type OauthFixture, startOauthFixture } from "../support/mcp/oauth-fixture.ts";

const ISSUER = "https://idp.example.com";
const OTHER_ISSUER = "https://partner.example.com";
const key = createSigningKey("ES256", "k1");
const otherKey = createSigningKey("ES256", "k2");
/** A machine that is busy takes minutes for 500: `VAULT_USERS=500 npm test -- test/scenario/mcp-logins-many`. */
const USERS = Number(process.env.VAULT_USERS ?? 60);
const AT_ONCE = 20;

function config(server: OauthFixture, folder: string): string {
  const provider = (issuer: string, signer: typeof key) => ({
    issuer,
    audiences: ["gateway"],
    jwks: { inline: keySetOf(signer) },
  });
  return JSON.stringify({
    config: { logging: { level: "warn,access=off" }, store: { folder } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        name: "tools",
        policies: { jwtAuth: { providers: [provider(ISSUER, key), provider(OTHER_ISSUER, otherKey)] } },
        backends: [
          {
            mcp: {
              vaultKey: "a key of at least thirty-two characters",
              targets: [
                { name: "cal", mcp: { url: server.mcpUrl, oauth: { connectUrl: "http://gateway.test/connect" } } },
              ],
            },
          },
        ],
      },
      { name: "connect", backends: [{ mcpLogins: {} }] },
    ],
  });
}

function tokenOf(sub: unknown, claims: object = {}, signer = key): string {
  const exp = Math.floor(Date.now() / 1000) + 86_400;
  return signToken({ key: signer, claims: { iss: ISSUER, aud: "gateway", sub, exp, ...claims } as never });
}

const userOf = (i: number): string => `user${i}`;

async function inTurn(count: number, work: (i: number) => Promise<void>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (let i = next++; i < count; i = next++) await work(i);
    }),
  );
}

async function whoami(gateway: TestGateway, token: string) {
  const headers = { authorization: `Bearer ${token}` };
  return modernPost(`${gateway.url()}/mcp`, "tools/call", { name: "whoami", arguments: {} }, { headers });
}

async function connect(gateway: TestGateway, server: OauthFixture, i: number): Promise<string> {
  const { message } = await whoami(gateway, tokenOf(userOf(i)));
  assert.equal(message.error?.code, -32042, JSON.stringify(message));
  const address = message.error.data.elicitations[0].url.replace("http://gateway.test", gateway.url());
  const sent = await fetch(address, {
    method: "POST",
    redirect: "manual",
    headers: { origin: "http://gateway.test" },
  });
  const cookie = (sent.headers.get("set-cookie") ?? "").split(";", 1)[0] ?? "";
  const back = server.logIn(sent.headers.get("location") ?? "", `${userOf(i)}@cal`);
  const done = await fetch(back.replace("http://gateway.test", gateway.url()), { headers: { cookie } });
  assert.equal(done.status, 200);
  return address;
}

test(`${USERS} users with accounts: nobody uses another's`, async (t) => {
  const server = await startOauthFixture();
  t.after(() => server.close());
  const folder = mkdtempSync(join(tmpdir(), "vault-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const first = await startGateway(config(server, folder));
  const tickets: string[] = [];
  await inTurn(USERS, async (i) => {
    tickets[i] = await connect(first, server, i);
  });
  assert.equal(new Set(server.tokens.values()).size, USERS);

  // Sessions of the 2025 era, one in ten.
  const sessions: string[] = [];
  await inTurn(USERS / 10, async (i) => {
    const client = rawClient(`${first.url()}/mcp`);
    const { post } = client;
    client.post = (body, headers = {}) => post(body, { authorization: `Bearer ${tokenOf(userOf(i))}`, ...headers });
    await client.initialize();
    assert.equal((await client.call("whoami")).result.content[0].text, `${userOf(i)}@cal`);
    sessions[i] = client.sessionId ?? "";
  });
  assert.equal(new Set(sessions).size, USERS / 10);

  async function attack(gateway: TestGateway): Promise<void> {
    await inTurn(USERS, async (i) => {
      const own = await whoami(gateway, tokenOf(userOf(i)));
      assert.equal(own.message.result?.content[0].text, `${userOf(i)}@cal`, JSON.stringify(own.message));
      // The same subject of another accepted issuer is somebody else.
      const namesake = await whoami(gateway, tokenOf(userOf(i), { iss: OTHER_ISSUER }, otherKey));
      assert.equal(namesake.message.error?.code, -32042);
      // A session of another user.
      const thief = rawClient(`${gateway.url()}/mcp`);
      thief.sessionId = sessions[(i + 1) % sessions.length];
      if (i === (i + 1) % sessions.length) return;
      const owner = (i + 1) % sessions.length;
      const stolen = await thief.post(
        { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "whoami" } },
        { authorization: `Bearer ${tokenOf(userOf(i === owner ? i + 1 : i))}` },
      );
      assert.ok(stolen.status === 404 && !stolen.text.includes("@cal"), stolen.text);
      // A ticket works once.
      assert.equal((await fetch(tickets[i]?.replace(/^http:\/\/[^/]+/, gateway.url()) ?? "")).status, 410);
    });
    const [head, , signature] = tokenOf("user0").split(".");
    const payload = Buffer.from(JSON.stringify({ iss: ISSUER, aud: "gateway", sub: "user1", exp: 4e9 })).toString(
      "base64url",
    );
    for (const [what, token] of [
      ["a changed subject", `${head}.${payload}.${signature}`],
      ["no signature", `${Buffer.from('{"alg":"none"}').toString("base64url")}.${payload}.`],
      ["a key of the other issuer", tokenOf("user1", {}, otherKey)],
      ["another audience", tokenOf("user1", { aud: "other" })],
    ] as const)
      assert.equal((await whoami(gateway, token)).status, 401, what);
    for (const [what, token] of [
      ["a subject with a space", tokenOf("user1 ")],
      ["a subject with a zero", tokenOf("user1\0")],
      ["a subject in another case", tokenOf("User1")],
      ["a subject that looks like a principal", tokenOf(`jwt:["${ISSUER}","user1"]`)],
      ["a subject that ends the list", tokenOf('","user1')],
      ["no subject", tokenOf(undefined)],
      ["an empty subject", tokenOf("")],
      ["a subject that is a list", tokenOf(["user1"])],
      ["a user's name in another claim", tokenOf("mallory", { preferred_username: "user1", email: "user1@cal" })],
    ] as const) {
      const { message, status } = await whoami(gateway, token);
      assert.ok(status === 401 || message.error?.code === -32042, `${what}: ${status} ${JSON.stringify(message)}`);
    }
  }
  await attack(first);
  await first.close();
  const second = await startGateway(config(server, folder));
  t.after(() => second.close());
  await attack(second);
});
