import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { tokenPrincipal } from "../../core/principal.ts";
import type { Fetch } from "../../http/fetch.ts";
import { HeaderList } from "../../http/headers.ts";
import type { Store } from "../../store/store.ts";
import { confinedFetch, discoverLogin } from "./oauth-client.ts";
import { LoginRegistry, ServerLogin } from "./server-login.ts";
import { Vault } from "./vault.ts";

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
    list: async (prefix: string) => ({
      entries: [...records].filter(([key]) => key.startsWith(prefix)).map(([key, value]) => ({ key, value })),
    }),
  };
  return { store: store as unknown as Store, records };
}

function logins(store: Store, clock = fakeClock(), id = "route0/cal", url = SERVER) {
  const vault = new Vault(store, KEY);
  const logger = { info: () => undefined } as never;
  const login = new ServerLogin(
    id,
    "cal",
    url,
    { connectUrl: "https://gw.example/connect" },
    { clock, fetch: authorizationServer(), logger, vault },
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

for (const [what, change] of [
  ["a loopback address as its token endpoint", { token_endpoint: "https://127.0.0.1/token" }],
  ["an address of the cloud's metadata service", { token_endpoint: "https://169.254.169.254/token" }],
  ["a private address", { authorization_endpoint: "https://10.0.0.1/authorize" }],
  ["a mapped address", { token_endpoint: "https://[::ffff:127.0.0.1]/token" }],
  ["localhost", { token_endpoint: "https://localhost./token" }],
  ["http", { token_endpoint: "http://cal.example/token" }],
  ["credentials", { token_endpoint: "https://a:b@cal.example/token" }],
  ["another issuer", { issuer: "https://evil.example" }],
] as const)
  test(`a server on the internet that names ${what} has no login`, async () => {
    const inner = authorizationServer();
    const fetch: Fetch = async (request) => {
      const answer = await inner(request);
      if (!request.url.includes("oauth-authorization-server")) return answer;
      return { ...answer, body: Buffer.from(JSON.stringify({ ...JSON.parse(answer.body.toString()), ...change })) };
    };
    await assert.rejects(discoverLogin(SERVER, undefined, fetch));
  });

test("requests to URLs from a server's metadata are confined; those to the server itself and to local servers are not", async () => {
  const asked: (boolean | undefined)[] = [];
  const fetch: Fetch = async (request) => {
    asked.push(request.isConfined);
    return { status: 200, headers: new HeaderList(), body: Buffer.alloc(0) };
  };
  const limits = { timeoutMs: 1, maxBytes: 1 };
  await confinedFetch(SERVER, fetch)({ url: "https://cal.example/x", ...limits });
  await confinedFetch(SERVER, fetch)({ url: "https://idp.example/x", ...limits });
  await confinedFetch("http://10.1.2.3/mcp", fetch)({ url: "https://idp.example/x", ...limits });
  assert.deepEqual(asked, [undefined, true, undefined]);
});
