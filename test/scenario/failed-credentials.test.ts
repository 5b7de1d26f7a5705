/**
 * Wrong passwords and API keys: 401 up to a limit per client address and user name, then 429. Correct credentials pass,
 * and what is no attempt to guess is not counted.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { connect as connectHttp2 } from "node:http2";
import { test } from "node:test";
import { DEMO_TARGET } from "../support/identity/protected-gateway.ts";
import { gatewayFor } from "../support/scenario.ts";

const HTPASSWD = ["alice", "bob"].map((user) => `${user}:{SHA}${createHash("sha1").update("right").digest("base64")}`);

interface Sent {
  readonly path?: string;
  readonly headers?: Record<string, string>;
}

const basic = (user: string, password: string) => ({
  authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`,
});
const key = (value: string) => ({ "x-api-key": value });

const CONFIG = `config: { trustedProxies: [127.0.0.1] }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: users
    matches: [{ path: { pathPrefix: /users } }]
    policies: &users
      basicAuth: { htpasswd: "${HTPASSWD.join("\\n")}" }
      directResponse: { status: 200 }
  - { name: other, matches: [{ path: { pathPrefix: /other } }], policies: *users }
  - name: keys
    matches: [{ path: { pathPrefix: /keys } }]
    policies: { apiKey: { keys: [{ key: right-key }] }, directResponse: { status: 200 } }
  - name: stored
    matches: [{ path: { pathPrefix: /stored } }]
    policies: { apiKey: { stored: true }, directResponse: { status: 200 } }
  - name: open
    matches: [{ path: { pathPrefix: /open } }]
    policies: { apiKey: { mode: permissive, keys: [{ key: right-key }] }, directResponse: { status: 200 } }
  - name: unlimited
    matches: [{ path: { pathPrefix: /unlimited } }]
    policies: { apiKey: { failureLimit: false, keys: [{ key: right-key }] }, directResponse: { status: 200 } }
  - name: blocked
    matches: [{ path: { pathPrefix: /blocked } }]
    policies: { apiKey: { failureLimit: { user: 3, block: true }, keys: [{ key: right-key }] }, directResponse: { status: 200 } }
  - name: tools
    matches: [{ path: { pathPrefix: /mcp } }]
    policies: { apiKey: { keys: [{ key: right-key }] } }
    backends: [{ mcp: { targets: [${DEMO_TARGET}] } }]
`;

test("guesses are limited per client address and user name", async (t) => {
  const gateway = await gatewayFor(t, CONFIG);
  let address = 0;
  const send = async ({ path = "/users", headers = {} }: Sent): Promise<Response> => {
    const response = await fetch(`${gateway.url()}${path}`, {
      headers: { "x-forwarded-for": `203.0.113.${address}`, ...headers },
    });
    await response.text();
    return response;
  };
  /** How many of the same requests are answered with which status. */
  const statuses = async (count: number, sent: Sent): Promise<Record<number, number>> => {
    const counts: Record<number, number> = {};
    for (let i = 0; i < count; i++) {
      const { status } = await send(sent);
      counts[status] = (counts[status] ?? 0) + 1;
    }
    return counts;
  };
  const next = (): void => {
    address += 1;
  };

  await t.test("wrong passwords of a user: 20 × 401, then 429 with retry-after", async () => {
    next();
    assert.deepEqual(await statuses(25, { headers: basic("alice", "wrong") }), { 401: 20, 429: 5 });
    const rejected = await send({ headers: basic("alice", "wrong") });
    const seconds = Number(rejected.headers.get("retry-after"));
    assert.ok(seconds >= 1 && seconds <= 60, String(seconds));
    assert.equal(rejected.headers.get("www-authenticate"), null);
    assert.deepEqual(await statuses(3, { headers: basic("alice", "right") }), { 200: 3 });
    assert.deepEqual(await statuses(1, { headers: basic("bob", "wrong") }), { 401: 1 });
    assert.deepEqual(await statuses(1, { path: "/other", headers: basic("alice", "wrong") }), { 401: 1 });
    next();
    assert.deepEqual(await statuses(1, { headers: basic("alice", "wrong") }), { 401: 1 });
  });

  await t.test("correct passwords are not counted", async () => {
    next();
    assert.deepEqual(await statuses(30, { headers: basic("alice", "right") }), { 200: 30 });
    assert.deepEqual(await statuses(21, { headers: basic("alice", "wrong") }), { 401: 20, 429: 1 });
  });

  await t.test("wrong passwords of many users: 200 per address", async () => {
    next();
    const counts: Record<number, number> = {};
    for (let i = 0; i < 210; i++) {
      const { status } = await send({ headers: basic(`user${i}`, "wrong") });
      counts[status] = (counts[status] ?? 0) + 1;
    }
    assert.deepEqual(counts, { 401: 200, 429: 10 });
    assert.deepEqual(await statuses(1, { headers: basic("bob", "right") }), { 200: 1 });
  });

  for (const path of ["/keys", "/stored"])
    await t.test(`wrong API keys at ${path}`, async () => {
      next();
      assert.deepEqual(await statuses(22, { path, headers: key("wrong") }), { 401: 20, 429: 2 });
      if (path === "/keys") assert.deepEqual(await statuses(1, { path, headers: key("right-key") }), { 200: 1 });
    });

  await t.test("MCP requests get the same status", async () => {
    next();
    assert.deepEqual(await statuses(22, { path: "/mcp", headers: key("wrong") }), { 401: 20, 429: 2 });
  });

  await t.test("what is no guess keeps its 401: nothing, tokens of others, other schemes, no pair", async () => {
    next();
    const token = `${Buffer.from('{"alg":"none"}').toString("base64url")}.e30.x`;
    for (const path of ["/users", "/keys"])
      for (const headers of [{}, { authorization: `Bearer ${token}` }, { authorization: "Digest x" }])
        assert.deepEqual(await statuses(25, { path, headers }), { 401: 25 });
    assert.deepEqual(await statuses(25, { headers: { authorization: "Basic bm9jb2xvbg==" } }), { 401: 25 });
  });

  await t.test("permissive mode and `failureLimit: false` count nothing", async () => {
    next();
    assert.deepEqual(await statuses(30, { path: "/open", headers: key("wrong") }), { 200: 30 });
    assert.deepEqual(await statuses(30, { path: "/unlimited", headers: key("wrong") }), { 401: 30 });
  });

  await t.test("with `block`, a correct key is rejected too while the limit is reached", async () => {
    next();
    assert.deepEqual(await statuses(2, { path: "/blocked", headers: key("wrong") }), { 401: 2 });
    assert.deepEqual(await statuses(1, { path: "/blocked", headers: key("right-key") }), { 200: 1 });
    assert.deepEqual(await statuses(2, { path: "/blocked", headers: key("wrong") }), { 401: 1, 429: 1 });
    assert.deepEqual(await statuses(1, { path: "/blocked", headers: key("right-key") }), { 429: 1 });
  });

  await t.test("the addresses of an IPv6 network are one client", async () => {
    const from = (address: string) => ({ "x-forwarded-for": address, ...basic("alice", "wrong") });
    const counts: Record<number, number> = {};
    for (let i = 0; i < 25; i++) {
      const { status } = await send({ headers: from(`2001:db8:0:7:${i.toString(16)}::1`) });
      counts[status] = (counts[status] ?? 0) + 1;
    }
    assert.deepEqual(counts, { 401: 20, 429: 5 });
    assert.deepEqual(await statuses(1, { headers: from("[2001:DB8:0:7::ffff]:4711") }), { 429: 1 });
    assert.deepEqual(await statuses(1, { headers: from("2001:db8:0:8::1") }), { 401: 1 });
  });

  await t.test("requests over HTTP/2 count with the others", async () => {
    next();
    const session = connectHttp2(gateway.url());
    t.after(() => session.close());
    const status = (): Promise<unknown> =>
      new Promise((resolve, reject) => {
        const stream = session.request({
          ":path": "/users",
          "x-forwarded-for": `203.0.113.${address}`,
          ...basic("alice", "wrong"),
        });
        stream.on("response", (head) => resolve(head[":status"]));
        stream.on("error", reject);
        stream.resume();
      });
    const counts: Record<string, number> = {};
    for (let i = 0; i < 25; i++) {
      const one = String(await status());
      counts[one] = (counts[one] ?? 0) + 1;
    }
    assert.deepEqual(counts, { 401: 20, 429: 5 });
    assert.deepEqual(await statuses(1, { headers: basic("alice", "wrong") }), { 429: 1 });
  });

  await t.test("thousands of names of one client lift no limit of another", async () => {
    next();
    for (let i = 0; i < 20; i++) await send({ headers: basic("alice", "wrong") });
    const victim = address;
    next();
    for (let batch = 0; batch < 40; batch++)
      await Promise.all(Array.from({ length: 50 }, (_, i) => send({ headers: basic(`user-${batch}-${i}`, "wrong") })));
    address = victim;
    assert.deepEqual(await statuses(1, { headers: basic("alice", "wrong") }), { 429: 1 });
    assert.deepEqual(await statuses(1, { headers: basic("alice", "right") }), { 200: 1 });
    address += 1;
  });

  await t.test("what-if counts nothing", async () => {
    next();
    const request = { url: "/users", headers: basic("alice", "wrong"), source: `203.0.113.${address}` };
    const body = JSON.stringify({ request, repeat: 30 });
    await (await fetch(`${gateway.adminUrl}/debug/what-if`, { method: "POST", body })).text();
    assert.deepEqual(await statuses(20, { headers: basic("alice", "wrong") }), { 401: 20 });
  });
});

test("behind a proxy that is not trusted, only the user name counts", async (t) => {
  const gateway = await gatewayFor(t, CONFIG.replace("config: { trustedProxies: [127.0.0.1] }\n", ""));
  const send = async (i: number, path: string, headers: Record<string, string>): Promise<number> => {
    const response = await fetch(`${gateway.url()}${path}`, {
      headers: { "x-forwarded-for": `203.0.113.${i}`, ...headers },
    });
    await response.text();
    return response.status;
  };
  const counts: Record<number, number> = {};
  for (let i = 0; i < 22; i++) {
    const status = await send(i, "/users", basic("alice", "wrong"));
    counts[status] = (counts[status] ?? 0) + 1;
  }
  assert.deepEqual(counts, { 401: 20, 429: 2 });
  for (let i = 0; i < 210; i++) assert.equal(await send(1, "/users", basic(`user${i}`, "wrong")), 401);
  assert.equal(await send(1, "/users", basic("alice", "right")), 200);
});
