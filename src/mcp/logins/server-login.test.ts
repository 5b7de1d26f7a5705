import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { tokenPrincipal } from "../../core/principal.ts";
import { type Fetch, FetchError } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import type { Store } from "../../store/store.ts";
import type { OauthConfig } from "../server-side/target-config.ts";
import { confinedFetch, discoverLogin, learningFetch } from "./oauth-client.ts";
import { type Connection, LoginRegistry, ServerLogin } from "./server-login.ts";
import { placeName, Vault } from "./vault.ts";

const KEY = "a key of at least thirty-two characters";
const SERVER = "https://cal.example/mcp";

/** An authorization server whose codes are the names of users: `at:<user>:<n>`. */
function authorizationServer(): Fetch {
  let n = 0;
  const reply = (status: number, value: object) => ({
    status,
    headers: new HeaderList(),
    body: Buffer.from(JSON.stringify(value)),
  });
  return async ({ url, body }) => {
    const { pathname } = new URL(url);
    if (pathname === "/mcp") return reply(401, {});
    if (pathname.startsWith("/.well-known/oauth-protected")) return reply(200, { resource: SERVER });
    if (pathname === "/.well-known/oauth-authorization-server")
      return reply(200, {
        issuer: "https://cal.example",
        authorization_endpoint: "https://cal.example/authorize",
        token_endpoint: "https://cal.example/token",
        registration_endpoint: "https://cal.example/register",
        revocation_endpoint: "https://cal.example/revoke",
      });
    if (pathname === "/register") return reply(201, { client_id: "c" });
    const form = new URLSearchParams(body?.toString());
    const user = form.get("code") ?? (form.get("refresh_token") ?? "").split(":")[1];
    n += 1;
    return reply(200, { access_token: `at:${user}:${n}`, refresh_token: `rt:${user}:${n}`, expires_in: 600 });
  };
}

function memory(): { store: Store; records: Map<string, string> } {
  const records = new Map<string, string>();
  const store = {
    get: async (key: string) => records.get(key),
    set: async (key: string, value: string) => void records.set(key, value),
    delete: async (key: string) => records.delete(key),
    replace: async (key: string, expected: string | undefined, value: string) => {
      if (records.get(key) !== expected) return false;
      records.set(key, value);
      return true;
    },
    list: async (prefix: string) => ({
      entries: [...records].filter(([key]) => key.startsWith(prefix)).map(([key, value]) => ({ key, value })),
    }),
  };
  return { store: store as unknown as Store, records };
}

function logins(
  store: Store,
  clock = fakeClock(),
  id = "route0/cal",
  url = SERVER,
  { fetch = authorizationServer(), ...oauth }: { fetch?: Fetch } & Partial<OauthConfig> = {},
) {
  const vault = new Vault(store, KEY);
  const logger = { info: () => undefined } as never;
  const login = new ServerLogin(
    id,
    "cal",
    url,
    { connectUrl: "https://gw.example/connect", ...oauth },
    { clock, fetch, logger, vault },
  );
  const registry = new LoginRegistry();
  registry.add(login, vault);
  return { login, registry, clock };
}

const principalOf = (user: string): string => tokenPrincipal({ iss: "https://idp.example", sub: user }, "");

async function connect({ login, registry }: ReturnType<typeof logins>, principal: string, user: string): Promise<void> {
  const ticket = new URL(await login.invite(principal, user)).searchParams.get("ticket") ?? "";
  const accepted = await registry.accept(ticket);
  assert.equal(accepted?.invitation.principal, principal);
  assert.equal(accepted.invitation.person, user);
  const { url, state } = await login.begin({ principal, login: login.id }, "browser");
  assert.equal(new URL(url).searchParams.get("state"), state);
  for (const wrong of [[], [""], ["another"], ["browser2"]])
    assert.equal(await registry.returned(state, () => wrong), "other browser");
  const returned = await registry.returned(state, () => ["another", "browser"]);
  assert.ok(returned !== undefined && returned !== "other browser");
  assert.equal(await registry.returned(state, () => ["browser"]), undefined, "a state works once");
  await returned.login.finish(returned.flow, { code: user, issuer: undefined });
}

test("500 users get only their own tokens, even after a restart and with moved records", async () => {
  const { store, records } = memory();
  const before = logins(store);
  const users = Array.from({ length: 500 }, (_, i) => `user${i}`);
  for (const [i, user] of users.entries()) if (i % 2 === 0) await connect(before, principalOf(user), user);
  const check = async ({ login }: ReturnType<typeof logins>): Promise<void> => {
    for (const [i, user] of users.entries()) {
      const token = await login.token(principalOf(user));
      if (i % 2 === 0) assert.match(token ?? "", new RegExp(`^at:${user}:\\d+$`));
      else assert.equal(token, undefined);
    }
  };
  await check(before);
  const after = logins(store, before.clock);
  await check(after);
  assert.equal((await after.login.connections()).length, 250);
  // Forged subjects: the same text in another place, another issuer, names that look alike.
  for (const forged of [
    "user0",
    `jwt:${JSON.stringify(["https://idp.example", "user0 "])}`,
    tokenPrincipal({ iss: "https://idp.example/", sub: "user0" }, ""),
    tokenPrincipal({ iss: "https://evil.example", sub: "user0" }, ""),
    tokenPrincipal({ iss: "https://idp.example" }, "user0"),
    "",
  ])
    assert.equal(await after.login.token(forged), undefined);
  // Somebody who can write to the store gives an own place another's record.
  const places = [...records.keys()].filter((key) => key.startsWith("token/"));
  const [one = "", two = ""] = places;
  records.set(two, records.get(one) ?? "");
  const moved = logins(store, before.clock);
  const tokens = await Promise.all(users.map((user) => moved.login.token(principalOf(user))));
  assert.equal(tokens.filter((token) => token !== undefined).length, 249);
  assert.equal(new Set(tokens.filter((token) => token !== undefined)).size, 249);
  // A target that points to another server now gets nothing of the old one.
  assert.equal(
    await logins(store, before.clock, "route0/cal", "https://other.example/mcp").login.token(principalOf("user0")),
    undefined,
  );
});

test("a token is renewed before it expires, once for many calls, and forgotten when it is revoked", async () => {
  const { store } = memory();
  const parts = logins(store);
  const alice = principalOf("alice");
  await connect(parts, alice, "alice");
  const first = await parts.login.token(alice);
  await parts.clock.advance(570_000);
  const renewed = await Promise.all(Array.from({ length: 20 }, () => parts.login.token(alice)));
  assert.equal(new Set(renewed).size, 1);
  assert.notEqual(renewed[0], first);
  assert.equal(await parts.login.revoke(alice), true);
  assert.equal(await parts.login.token(alice), undefined);
  assert.equal(await parts.login.revoke(alice), false);
});

/** Replaces members of the authorization server metadata. */
function withMetadata(members: object): Fetch {
  const inner = authorizationServer();
  return async (request) => {
    const answer = await inner(request);
    if (!request.url.includes("oauth-authorization-server")) return answer;
    return { ...answer, body: Buffer.from(JSON.stringify({ ...JSON.parse(answer.body.toString()), ...members })) };
  };
}

const configured = { issuer: "https://cal.example", clientId: "c", clientSecret: "s" };
for (const [what, oauth, registration, isRenewed] of [
  ["with the configured issuer", configured, undefined, true],
  ["with a registration of the older version", {}, { clientId: "c" }, true],
  ["without a registration", {}, undefined, false],
  ["with a configured client whose issuer is not configured", { clientId: "c" }, { clientId: "c" }, false],
  [
    "with an issuer whose tokens come from elsewhere",
    { fetch: withMetadata({ token_endpoint: "https://idp.example/token" }) },
    { clientId: "c" },
    false,
  ],
] as const)
  test(`a connection of an older version ${what} is ${isRenewed ? "renewed" : "connected again"} [D35]`, async () => {
    const { store } = memory();
    const clock = fakeClock();
    const vault = new Vault(store, KEY);
    const alice = principalOf("alice");
    const { login } = logins(store, clock, "route0/cal", SERVER, oauth);
    const tokens = { accessToken: "old", refreshToken: "rt:alice:0", expiresAtMs: clock.now() + 90_000 };
    const place = `token/${placeName(login.id, SERVER)}/${placeName(alice)}`;
    await vault.put(place, { principal: alice, login: login.id, tokens, connectedAtMs: 0 });
    if (registration !== undefined)
      await vault.put(`client/${placeName(login.id, "https://cal.example", login.redirectUri)}`, registration);
    assert.equal(await login.token(alice), "old");
    await clock.advance(40_000);
    assert.equal(await login.token(alice), isRenewed ? "at:alice:1" : undefined);
    const stored = await vault.get<Connection>(place);
    assert.equal(stored?.server?.issuer, isRenewed ? "https://cal.example" : undefined);
  });

test("a connection ends if its server cannot be reached and the MCP server names another one, or if the issuer is changed [D35]", async () => {
  const { store } = memory();
  let isDown = false;
  let members = {};
  const fetch: Fetch = (request) =>
    isDown && request.url === "https://cal.example/token"
      ? Promise.reject(new FetchError("network", "refused"))
      : withMetadata(members)(request);
  const parts = logins(store, fakeClock(), "route0/cal", SERVER, { fetch });
  const [alice, bob] = [principalOf("alice"), principalOf("bob")];
  await connect(parts, alice, "alice");
  await connect(parts, bob, "bob");
  await parts.clock.advance(601_000);
  isDown = true;
  await assert.rejects(parts.login.token(alice), /refused/);
  await parts.clock.advance(601_000);
  members = { token_endpoint: "https://idp.example/token" };
  assert.equal(await parts.login.token(alice), undefined);
  const other = logins(store, parts.clock, "route0/cal", SERVER, { issuer: "https://idp.example" });
  assert.equal(await other.login.token(bob), undefined);
});

for (const [what, change] of [
  ["a loopback address as its token endpoint", { token_endpoint: "https://127.0.0.1/token" }],
  ["an address of the cloud's metadata service", { token_endpoint: "https://169.254.169.254/token" }],
  ["a private address", { authorization_endpoint: "https://10.0.0.1/authorize" }],
  ["a mapped address", { token_endpoint: "https://[::ffff:127.0.0.1]/token" }],
  ...["100.64.0.9", "198.18.0.1", "168.63.129.16", "224.0.0.1", "0x7f000001", "2130706433", "127.1", "[fd12::5]", "[ff02::1]", "[2002:a00:1::]", "[64:ff9b::a00:1]", "[fd00::5efe:808:808]"].map(
    (host) => [host, { token_endpoint: `https://${host}/token` }] as const,
  ), // biome-ignore format: a table
  ["localhost", { token_endpoint: "https://localhost./token" }],
  ["http", { token_endpoint: "http://cal.example/token" }],
  ["credentials", { token_endpoint: "https://a:b@cal.example/token" }],
  ["another issuer", { issuer: "https://evil.example" }],
] as const)
  test(`a server on the internet that names ${what} has no login`, async () => {
    await assert.rejects(discoverLogin(SERVER, {}, withMetadata(change)));
  });

const RESOURCES: readonly [named: string, resource: string | undefined, isAccepted: boolean][] = [
  [SERVER, undefined, true],
  ["https://cal.example", undefined, true],
  ["https://cal.example/", undefined, true],
  [`${SERVER}/`, undefined, true],
  ["https://cal.example/m", undefined, false],
  ["https://cal.example/mcp/other", undefined, false],
  ["https://mail.example/mcp", undefined, false],
  ["http://cal.example/mcp", undefined, false],
  ["https://cal.example:8443/mcp", undefined, false],
  ["urn:mail", undefined, false],
  ["https://mail.example/mcp", "https://mail.example/mcp", true],
];
for (const [named, resource, isAccepted] of RESOURCES)
  test(`a server that names the resource ${named} gets ${isAccepted ? "" : "no "}tokens${resource ? ", as configured" : ""} [D35]`, async () => {
    const inner = authorizationServer();
    const fetch: Fetch = async (request) =>
      request.url.includes("oauth-protected-resource")
        ? { status: 200, headers: new HeaderList(), body: Buffer.from(JSON.stringify({ resource: named })) }
        : inner(request);
    const found = discoverLogin(SERVER, { resource }, fetch);
    if (isAccepted) assert.equal((await found).server.resource, named);
    else await assert.rejects(found, /names another resource/);
    // A server in the own network may have another public address.
    const local = "http://10.1.2.3/mcp";
    const there: Fetch = (request) =>
      fetch({ ...request, url: request.url.replace("http://10.1.2.3", "https://cal.example") });
    assert.equal((await discoverLogin(local, { issuer: "https://cal.example" }, there)).server.resource, named);
  });

/** A fetch whose connections use these addresses, one per request. The last one stays. */
function resolving(addresses: Readonly<Record<string, readonly string[]>>): { fetch: Fetch; connected: string[] } {
  const connected: string[] = [];
  const left = new Map(Object.entries(addresses).map(([host, list]) => [host, [...list]]));
  const fetch: Fetch = async ({ url, egress }) => {
    const { hostname } = new URL(url);
    const list = left.get(hostname) ?? [];
    const address = list[0] ?? "8.8.8.8";
    if (egress?.permits(address, hostname) === false) throw new FetchError("refused", "refused");
    if (list.length > 1) list.shift();
    connected.push(address);
    return { status: 200, headers: new HeaderList(), body: Buffer.alloc(0) };
  };
  return { fetch, connected };
}

const PRIVATE = [
  "10.1.2.3",
  "172.16.0.1",
  "192.168.0.1",
  "100.64.0.9",
  "127.0.0.1",
  "169.254.169.254",
  "fd12::5",
  "::1",
];
const to = (url: string) => ({ url, timeoutMs: 1, input: peerInput("mcp-server/login-token") });

for (const address of PRIVATE)
  test(`a name in metadata that resolves to ${address} is refused, except for a configured issuer and a private server`, async () => {
    const { fetch, connected } = resolving({ "idp.example": [address], "cal.example": ["8.8.8.8"] });
    await assert.rejects(
      confinedFetch(SERVER, fetch)(to("https://idp.example/token")),
      /names an address of this network \(https:\/\/idp.example\): set `issuer`/,
    );
    await assert.rejects(
      confinedFetch(SERVER, fetch, "https://cal.example")(to("https://idp.example/token")),
      /network/,
    );
    const learning = learningFetch(SERVER, fetch);
    await learning(to(SERVER));
    await assert.rejects(learning(to("https://idp.example/token")), /names an address of this network/);
    assert.deepEqual(connected, ["8.8.8.8"]);
    await confinedFetch(SERVER, fetch, "https://idp.example")(to("https://idp.example/token"));
    await confinedFetch("http://10.1.2.3/mcp", fetch)(to("https://idp.example/token"));
    const inside = resolving({ "idp.example": [address], "cal.example": ["10.0.0.1"] });
    const learned = learningFetch(SERVER, inside.fetch);
    await learned(to(SERVER));
    await learned(to("https://idp.example/token"));
    assert.deepEqual(inside.connected, ["10.0.0.1", address]);
  });

for (const addresses of [
  ["8.8.8.8", "10.0.0.1"],
  ["10.0.0.1", "8.8.8.8"],
  ["10.0.0.1", "8.8.8.8", "10.0.0.1"],
])
  test(`a server whose name resolves to ${addresses} in turn is not private`, async () => {
    const { fetch, connected } = resolving({ "idp.example": ["10.0.0.2"], "cal.example": addresses });
    const learning = learningFetch(SERVER, fetch);
    for (const _ of addresses) await learning(to(SERVER)).catch(() => undefined);
    await assert.rejects(learning(to("https://idp.example/token")), /names an address of this network/);
    assert.ok(!connected.includes("10.0.0.2"));
  });
