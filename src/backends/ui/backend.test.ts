import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Reply } from "../../core/reply.ts";
import { ui } from "./backend.ts";
import { openUiFiles } from "./files.ts";
import type { UiCall, UiUser } from "./source.ts";

const source = {
  files: openUiFiles(undefined),
  call: async ({ name, method }: UiCall, { role }: UiUser) => {
    if (name === "keys" && role !== "operator") return "denied" as const;
    return name === "about" || name === "keys"
      ? { status: 200, type: "application/json", body: Buffer.from(method) }
      : undefined;
  },
};
const env = {
  ...testEnv,
  name: "ui",
  trustedHosts: [],
  requiresCredential: false,
  environment: {},
  tls: undefined,
  uiSource: source,
};

function ask(loopbackOnly: boolean, parts: Parameters<typeof anExchange>[0]): Promise<Reply> {
  return replyOf({ loopbackOnly }, anExchange({ path: "/ui/api/about", ...parts }));
}

async function replyOf(config: Parameters<typeof ui.compile>[0], exchange: Exchange): Promise<Reply> {
  const reply = await ui.compile(config, env).prepare(exchange, { model: false, call: false });
  assert.ok("status" in reply);
  return reply;
}

for (const { peer, host } of [
  { peer: "127.0.0.1", host: "localhost:3000" },
  { peer: "::1", host: "[::1]:3000" },
  { peer: "::ffff:127.0.0.1", host: "127.0.0.1" },
])
  test(`without a policy the peer ${peer} that requests ${host} is served`, async () => {
    assert.equal((await ask(true, { source: peer, host }))?.status, 200);
  });

for (const { name, peer, host } of [
  { name: "another machine", peer: "192.0.2.7", host: "localhost:3000" },
  { name: "a page whose name was pointed at loopback", peer: "127.0.0.1", host: "evil.example:3000" },
  { name: "a name that only begins like one", peer: "127.0.0.1", host: "localhost.evil.example" },
])
  test(`without a policy ${name} is rejected, with the name of the setting`, async () => {
    await assert.rejects(ask(true, { source: peer, host }), { status: 403, message: /`ui\.policies`/ });
  });

test("behind a policy every admitted client is served [S5-7]", async () => {
  assert.equal((await ask(false, { source: "192.0.2.7", host: "gateway.example" }))?.status, 200);
});

for (const { name, parts, status } of [
  { name: "a POST", parts: { method: "POST" }, status: 405 },
  { name: "what is for operators, where there are none", parts: { path: "/ui/api/keys" }, status: 404 },
  { name: "what it does not offer", parts: { path: "/ui/api/logging" }, status: 404 },
  { name: "a file that is not there", parts: { path: "/ui/secret.js" }, status: 404 },
  { name: "a read from another site", parts: { headers: { "sec-fetch-site": "cross-site" } }, status: 403 },
])
  test(`${name} gets ${status}`, async () => {
    assert.equal((await ask(false, parts))?.status, status);
  });

for (const { username, role } of [
  { username: "ann", role: "operator" },
  { username: "bob", role: "viewer" },
])
  test(`${username}, who is ${role}, ${role === "operator" ? "may change something" : "is rejected"}`, async () => {
    const exchange = anExchange({
      path: "/ui/api/keys",
      method: "POST",
      host: "gateway.example",
      headers: { origin: "http://gateway.example" },
    });
    exchange.attributes.basicAuth = { username };
    const config = { loopbackOnly: false, operator: 'basicAuth.username == "ann"' };
    const reply = replyOf(config, exchange);
    if (role === "operator") assert.equal((await reply)?.status, 200);
    else await assert.rejects(reply, { status: 403, message: /needs the role operator/ });
    assert.equal(exchange.records.isQuiet, false);
  });

/** The origin under which a browser sees the UI: from the request, from a trusted proxy, or from the sign-in. */
const addresses: [name: string, headers: Record<string, string>, session: string | undefined, origin: string][] = [
  ["reached directly", {}, undefined, "http://gateway.example"],
  ["behind a proxy with TLS", { "x-forwarded-proto": "https" }, undefined, "https://gateway.example"],
  [
    "behind a proxy with another name",
    { "x-forwarded-proto": "https", "x-forwarded-host": "ui.example" },
    undefined,
    "https://ui.example",
  ],
  ["with a sign-in", {}, "https://signed.example", "https://signed.example"],
];
const ORIGINS = [
  undefined,
  "null",
  "http://gateway.example",
  "https://gateway.example",
  "https://ui.example",
  "https://signed.example",
  "http://gateway.example:80",
  "http://gateway.example.evil",
  "https://evil.example",
];
for (const [name, forwarded, session, own] of addresses)
  test(`a UI ${name} accepts changes from its own pages only, and no other origin can read [D30]`, async () => {
    const config = { loopbackOnly: false, operator: "true" };
    for (const origin of ORIGINS)
      for (const [method, path] of [
        ["POST", "/ui/api/keys"],
        ["GET", "/ui/api/about"],
      ] as const)
        for (const site of [undefined, "same-origin", "same-site", "cross-site"]) {
          const exchange = anExchange({
            path,
            method,
            host: "gateway.example",
            headers: {
              ...forwarded,
              ...(origin === undefined ? {} : { origin }),
              ...(site === undefined ? {} : { "sec-fetch-site": site }),
            },
          });
          if (session !== undefined) exchange.identity.browserSession = { origin: session, logoutPath: "/logout" };
          const isOwn = (origin === own || (origin === undefined && method === "GET")) && !site?.endsWith("-site");
          const status = await replyOf(config, exchange).then(
            (reply) => reply?.status,
            (error: { status: number }) => error.status,
          );
          assert.equal(status, isOwn ? 200 : 403, `${method} ${origin} ${site}`);
        }
  });

test("a read is not recorded, even while it waits for its response; a rejection is", async () => {
  const config = { loopbackOnly: false, operator: 'basicAuth.username == "ann"' };
  const quiet = async (path: string): Promise<[waiting: boolean, after: boolean]> => {
    const exchange = anExchange({ path });
    const reply = replyOf(config, exchange).catch(() => undefined);
    const waiting = exchange.records.isQuiet;
    await reply;
    return [waiting, exchange.records.isQuiet];
  };
  assert.deepEqual(await quiet("/ui/api/about"), [true, true]);
  assert.deepEqual(await quiet("/ui/api/nothing"), [true, false]);
  assert.deepEqual(await quiet("/ui/api/keys"), [true, false]);
});
