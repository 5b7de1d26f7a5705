/** `targets[].mcp.oauth`: servers with logins of their own, tokens per user in the vault. */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { TestGateway } from "../support/gateway.ts";
import { startGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { type Json, type RawClient, rawClient } from "../support/mcp/client.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { type OauthFixture, startOauthFixture } from "../support/mcp/oauth-fixture.ts";

const VAULT_KEY = "a key of at least thirty-two characters";

function config(server: OauthFixture, users: readonly string[], oauth: object = {}, folder = "state"): string {
  return JSON.stringify({
    config: { logging: { level: "info,access=off" }, store: { folder } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: [
      {
        name: "tools",
        policies: { apiKey: { keys: users.map((user) => ({ key: `key-${user}`, metadata: { user } })) } },
        backends: [
          {
            mcp: {
              vaultKey: VAULT_KEY,
              targets: [
                {
                  name: "cal",
                  mcp: { url: server.mcpUrl, oauth: { connectUrl: "http://gateway.test/connect", ...oauth } },
                },
              ],
            },
          },
        ],
      },
      { name: "connect", backends: [{ mcpLogins: {} }] },
    ],
  });
}

function clientOf(gateway: TestGateway, user: string): RawClient {
  const client = rawClient(`${gateway.url()}/mcp`);
  const { post } = client;
  client.post = (body, headers = {}) => post(body, { authorization: `Bearer key-${user}`, ...headers });
  return client;
}

async function setUp(t: TestContext, users: readonly string[] = ["alice", "bob"], oauth: object = {}) {
  const server = await startOauthFixture();
  t.after(() => server.close());
  const gateway = await startGateway(config(server, users, oauth));
  t.after(() => gateway.close());
  return { server, gateway };
}

/** The address that a call without a login is answered with. */
async function invited(client: RawClient): Promise<string> {
  const { error } = await client.call("whoami");
  assert.equal(error.code, -32042);
  const [elicitation] = error.data.elicitations;
  assert.equal(elicitation.mode, "url");
  assert.ok(error.message.includes(elicitation.url));
  return elicitation.url;
}

function local(gateway: TestGateway, address: string): string {
  return address.replace("http://gateway.test", gateway.url());
}

/** The button of the page. */
function press(
  gateway: TestGateway,
  address: string,
  headers: Record<string, string> = { origin: new URL(address).origin },
): Promise<Response> {
  return fetch(local(gateway, address), { method: "POST", redirect: "manual", headers });
}

/** What a browser does: reads the page, presses the button, logs in, comes back. */
async function connect(gateway: TestGateway, server: OauthFixture, address: string, user: string): Promise<Response> {
  const page = await fetch(local(gateway, address));
  assert.equal(page.status, 200);
  assert.match(await page.text(), /<button>Connect<\/button>/);
  const sent = await press(gateway, address);
  assert.equal(sent.status, 303);
  const cookie = (sent.headers.get("set-cookie") ?? "").split(";", 1)[0] ?? "";
  const back = server.logIn(sent.headers.get("location") ?? "", user);
  return fetch(local(gateway, back), { headers: { cookie } });
}

async function opened(gateway: TestGateway, user: string): Promise<RawClient> {
  const client = clientOf(gateway, user);
  await client.initialize();
  return client;
}

const text = (answer: Json): string => answer.result.content[0].text;

test("a user connects once; the call goes on, and nobody else can use the account", async (t) => {
  const { server, gateway } = await setUp(t);
  const alice = await opened(gateway, "alice");
  assert.deepEqual(
    (await alice.request("tools/list")).result.tools.map(({ name }: Json) => name),
    ["connect"],
  );
  assert.match(text(await alice.call("connect")), /open http:\/\/gateway\.test\/connect\/start\?ticket=/);
  const listening = await alice.listen({ authorization: "Bearer key-alice" });
  const done = await connect(gateway, server, await invited(alice), "alice@cal");
  assert.equal(done.status, 200);
  assert.match(await done.text(), /cal is connected/);
  await listening.next(({ method }) => method === "notifications/tools/list_changed");
  listening.close();
  assert.equal(text(await alice.call("whoami")), "alice@cal");
  assert.deepEqual(
    (await alice.request("tools/list")).result.tools.map(({ name }: Json) => name),
    ["whoami"],
  );
  const bob = await opened(gateway, "bob");
  await invited(bob);
  // Another session of hers, and the 2026 era.
  assert.equal(text(await (await opened(gateway, "alice")).call("whoami")), "alice@cal");
  const headers = { authorization: "Bearer key-alice" };
  const modern = await modernPost(`${gateway.url()}/mcp`, "tools/call", { name: "whoami", arguments: {} }, { headers });
  assert.equal(modern.message.result.content[0].text, "alice@cal");
  assert.equal(server.registrations, 1);
  const form = server.requests[0]?.form;
  assert.equal(form?.get("resource"), server.mcpUrl);
  assert.ok(form?.get("code_verifier"));
});

test("tokens are renewed, a token that is taken back leads to a new login, and nothing is shown", async (t) => {
  const { server, gateway } = await setUp(t);
  const alice = await opened(gateway, "alice");
  await connect(gateway, server, await invited(alice), "alice@cal");
  assert.equal(text(await alice.call("whoami")), "alice@cal");
  // The server takes the access token back: the gateway renews it and repeats the call.
  const secrets = [...server.tokens.keys(), ...server.refreshTokens.keys()];
  server.tokens.clear();
  assert.equal(text(await alice.call("whoami")), "alice@cal");
  // The grant itself is gone.
  server.tokens.clear();
  server.refreshTokens.clear();
  await invited(alice);
  const shown = await Promise.all(
    ["/config_dump", "/debug/tasks", "/debug/requests", "/metrics"].map(async (path) =>
      (await fetch(`${gateway.adminUrl}${path}`)).text(),
    ),
  );
  const everything = [...shown, ...gateway.log(), ...filesBelow(join(gateway.folder, "state"))].join("\n");
  for (const secret of [...secrets, VAULT_KEY]) assert.ok(!everything.includes(secret), "a secret is shown");
});

test("a login that another browser began, a used ticket and a foreign state lead nowhere [D32]", async (t) => {
  const { server, gateway } = await setUp(t);
  const alice = await opened(gateway, "alice");
  const address = await invited(alice);
  const sent = await press(gateway, address);
  const back = server.logIn(sent.headers.get("location") ?? "", "mallory@cal");
  const [cookie = ""] = (sent.headers.get("set-cookie") ?? "").split(";", 1);
  const [name = ""] = cookie.split("=", 1);
  // The victim's browser has no cookie of the one that began, and the state stays valid.
  for (const wrong of ["", `${name}=`, `${name}=${"x".repeat(32)}`, cookie.slice(0, -1), `x${cookie}`, `${cookie}x`]) {
    const refused = await fetch(local(gateway, back), { headers: { cookie: wrong } });
    assert.equal(refused.status, 400, wrong);
    assert.match(await refused.text(), /not started in this browser.*The login is still open/s);
  }
  assert.deepEqual([...server.tokens], [], "no code was exchanged");
  // Another host of the domain set a cookie of the same name, which the browser sends first.
  const done = await fetch(local(gateway, back), { headers: { cookie: `${name}=${"x".repeat(32)}; ${cookie}` } });
  assert.equal(done.status, 200);
  assert.match(done.headers.get("set-cookie") ?? "", new RegExp(`^${name}=; .*Max-Age=0`));
  assert.equal((await fetch(local(gateway, back), { headers: { cookie } })).status, 410, "a state works once");
  assert.equal((await press(gateway, address)).status, 410);
  assert.equal((await fetch(`${gateway.url()}/connect/callback?state=${"x".repeat(32)}&code=1`)).status, 410);
  assert.equal((await fetch(`${gateway.url()}/connect/start?ticket=../../x`)).status, 410);
  assert.equal((await fetch(`${gateway.url()}/connect/else`)).status, 404);
  assert.notEqual(await invited(await opened(gateway, "bob")), address);
});

/** What browsers send with a form of another site: old ones and those without TLS send no Sec-Fetch-Site. */
const FOREIGN: Record<string, string>[] = [
  {},
  { origin: "null" },
  { origin: "https://evil.example" },
  { origin: "http://evil.example", "sec-fetch-site": "cross-site" },
  { origin: "http://sub.gateway.test", "sec-fetch-site": "same-site" },
  { origin: "http://gateway.test:8080" },
  { origin: "http://gateway.test.evil.example" },
  { "sec-fetch-site": "same-origin" },
];
for (const scheme of ["http", "https"])
  test(`${scheme}: a page of another site cannot connect the visitor's account to another user [D30] [D31]`, async (t) => {
    const { server, gateway } = await setUp(t, ["mallory"], { connectUrl: `${scheme}://gateway.test/connect` });
    const mallory = await opened(gateway, "mallory");
    const address = (await invited(mallory)).replace(/^https/, "http");
    const own = `${scheme}://gateway.test`;
    const swapped = `${scheme === "http" ? "https" : "http"}://gateway.test`;
    for (const headers of [...FOREIGN, { origin: swapped }, { origin: own, "sec-fetch-site": "cross-site" }]) {
      const sent = await press(gateway, address, headers);
      assert.equal(sent.status, 403, JSON.stringify(headers));
      assert.equal(sent.headers.get("set-cookie"), null);
      assert.match(await sent.text(), /Open the address that your assistant shows/);
    }
    // The rest of the attack: the victim's code, in the victim's browser, leads nowhere.
    await invited(mallory);
    assert.deepEqual([...server.tokens], []);
    // The page's own form works, and the ticket was not used up.
    const page = await fetch(local(gateway, address));
    assert.equal(page.headers.get("referrer-policy"), "same-origin", "otherwise browsers send `Origin: null`");
    const sent = await press(gateway, address, { origin: own, "sec-fetch-site": "same-origin" });
    assert.equal(sent.status, 303);
    const cookie = sent.headers.get("set-cookie") ?? "";
    assert.match(cookie, scheme === "https" ? /^__Host-gateway_connect_[\w-]{8}=/ : /^gateway_connect_[\w-]{8}=/);
    assert.match(cookie, /; Path=\/; /);
    assert.equal(/; Secure/.test(cookie), scheme === "https");
    assert.ok(!/domain/i.test(cookie));
    const back = server.logIn(sent.headers.get("location") ?? "", "mallory@cal").replace(/^https/, "http");
    if (scheme === "https") {
      // Any host of the domain can set a cookie without the prefix.
      const tossed = cookie.split(";", 1)[0]?.replace("__Host-", "") ?? "";
      assert.equal((await fetch(local(gateway, back), { headers: { cookie: tossed } })).status, 400);
    }
    const done = await fetch(local(gateway, back), { headers: { cookie: cookie.split(";", 1)[0] ?? "" } });
    assert.equal(done.status, 200);
    assert.equal(text(await mallory.call("whoami")), "mallory@cal");
  });

test("the page shows the user in words that people recognize [D34]", async (t) => {
  const { gateway } = await setUp(t, ["alice"]);
  const page = await (await fetch(local(gateway, await invited(await opened(gateway, "alice"))))).text();
  assert.match(page, /for the gateway user <b>alice \(API key [0-9a-f]{8}\)<\/b>/);
});

test("24 users: none can use another's account by session ids or keys, also after a restart", async (t) => {
  const users = Array.from({ length: 24 }, (_, i) => `user${i}`);
  const server = await startOauthFixture();
  t.after(() => server.close());
  const folder = mkdtempSync(join(tmpdir(), "vault-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const first = await startGateway(config(server, users, {}, folder));
  const sessions = new Map<string, string>();
  for (const user of users) {
    const client = await opened(first, user);
    sessions.set(user, client.sessionId ?? "");
    // Half of them connect.
    if (Number(user.slice(4)) % 2 === 0) await connect(first, server, await invited(client), `${user}@cal`);
  }
  async function checkAll(gateway: TestGateway): Promise<void> {
    for (const [i, user] of users.entries()) {
      const own = await opened(gateway, user);
      if (i % 2 === 0) assert.equal(text(await own.call("whoami")), `${user}@cal`);
      else await invited(own);
      // The session of a neighbour, with the own key.
      const thief = clientOf(gateway, user);
      thief.sessionId = sessions.get(users[(i + 1) % users.length] ?? "");
      const stolen = await thief.post({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "whoami" } });
      assert.ok(stolen.status === 404 && !stolen.text.includes("@cal"), stolen.text);
    }
  }
  await checkAll(first);
  await first.close();
  const second = await startGateway(config(server, users, {}, folder));
  t.after(() => second.close());
  await checkAll(second);
});

test("operators list, test and revoke connections, and see no token", async (t) => {
  const { server, gateway } = await setUp(t);
  const port = new URL(gateway.adminUrl).port;
  const run = (...args: string[]) => gwctl(["mcp", "connections", "-p", port, ...args]);
  assert.match((await run()).stderr, /no user has connected an account/);
  const [alice, bob] = [await opened(gateway, "alice"), await opened(gateway, "bob")];
  await connect(gateway, server, await invited(alice), "alice@cal");
  await connect(gateway, server, await invited(bob), "bob@cal");
  const listed = await run("-o", "json");
  const connections = JSON.parse(listed.stdout);
  assert.equal(connections.length, 2);
  assert.ok(!/at-|rt-/.test(listed.stdout), "a token is shown");
  assert.match((await run()).stdout, /cal +127\.0\.0\.1:\d+ .*renewed in time/);
  const users = await Promise.all(
    connections.map(async ({ id }: Json) => [(await run("--test", id)).stdout, id] as const),
  );
  for (const [said, id] of users) assert.equal(said, `${id}: the server accepts the token\n`);
  const [{ id }] = connections;
  const revoked = await run("--revoke", id);
  assert.match(revoked.stdout, /revoked: the server took the token back/);
  const again = await run("--revoke", id);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /no connection has this id; `gwctl mcp connections` lists them/);
  // At once, in sessions that are open too: one of the two must connect again, the other goes on.
  const answers = await Promise.all([alice.call("whoami"), bob.call("whoami")]);
  assert.equal(answers.filter(({ error }) => error?.code === -32042).length, 1);
  assert.equal(answers.filter(({ result }) => result !== undefined).length, 1);
  assert.equal((await fetch(`${gateway.adminUrl}/debug/mcp/connections`, { method: "POST", body: "{}" })).status, 400);
});

test("records that change places cannot be opened", async () => {
  const { Vault } = await import("../../src/mcp/logins/vault.ts");
  const records = new Map<string, string>();
  const store = {
    get: async (key: string) => records.get(key),
    set: async (key: string, value: string) => void records.set(key, value),
    delete: async (key: string) => records.delete(key),
  } as never;
  const vault = new Vault(store, VAULT_KEY);
  await vault.put("token/a", { accessToken: "of-alice" });
  assert.deepEqual(await vault.get("token/a"), { accessToken: "of-alice" });
  records.set("token/b", records.get("token/a") ?? "");
  assert.equal(await vault.get("token/b"), undefined);
  assert.equal(await new Vault(store, `${VAULT_KEY}2`).get("token/a"), undefined);
  assert.ok(![...records.values()].some((value) => Buffer.from(value, "base64").toString().includes("of-alice")));
});

for (const [what, change, problem] of [
  ["a vault without a key", (text: string) => text.replace(`"vaultKey":"${VAULT_KEY}",`, ""), /vaultKey/],
  [
    "a route without authentication",
    (text: string) => text.replace(/"policies":\{"apiKey".*?\]\}\},/, ""),
    /authentication policy/,
  ],
  [
    "a shared target",
    (text: string) => text.replace('"name":"cal",', '"name":"cal","shared":true,'),
    /connection per user/,
  ],
  [
    "a forwarded authorization header",
    (text: string) => text.replace('"oauth":', '"forwardHeaders":["authorization"],"oauth":'),
    /the gateway sets the authorization header/,
  ],
] as const)
  test(`${what} stops the load`, async (t) => {
    const server = await startOauthFixture();
    t.after(() => server.close());
    await assert.rejects(startGateway(change(config(server, ["alice"]))), problem);
  });

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? filesBelow(join(folder, entry.name)) : [readFileSync(join(folder, entry.name), "latin1")],
  );
}
