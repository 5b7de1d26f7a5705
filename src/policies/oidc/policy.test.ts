import assert from "node:assert/strict";
import { test } from "node:test";
import { createExchange, createTestEnv, type RequestWords } from "../../../test/support/identity/policy-env.ts";
import { createSigningKey, keySetOf, signToken } from "../../../test/support/identity/tokens.ts";
import { Owner } from "../../base/owner.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Reply } from "../../core/reply.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { ownedStore } from "../../store/owned-store.ts";
import { oidc } from "./policy.ts";

const ISSUER = "https://id.example.com";
const key = createSigningKey("ES256", "k1");

interface IdToken {
  readonly claims?: Readonly<Record<string, unknown>>;
  readonly header?: Readonly<Record<string, unknown>>;
}

/** The policy with a provider that accepts a code any number of times. */
function setUp(base: string, endpoints?: Readonly<Record<string, unknown>>) {
  const env = createTestEnv();
  const hooks = oidc.compile(
    oidc.schema.parse({ issuer: ISSUER, clientId: "ui", redirectUri: `${base}/oidc/callback`, ...endpoints }),
    { ...env, store: ownedStore(createMemoryStore(env.clock), Owner.standalone) },
  );
  const { answers } = env.provider;
  if (endpoints === undefined)
    answers.set(`${ISSUER}/.well-known/openid-configuration`, {
      body: {
        issuer: ISSUER,
        authorization_endpoint: `${ISSUER}/authorize`,
        token_endpoint: `${ISSUER}/token`,
        jwks_uri: `${ISSUER}/keys`,
      },
    });
  answers.set(`${ISSUER}/keys`, { body: keySetOf(key) });

  async function send(words: RequestWords): Promise<{ exchange: Exchange; reply: Reply | undefined }> {
    const exchange = createExchange({ method: "GET", ...words });
    return { exchange, reply: (await hooks.access?.head?.(exchange)) ?? undefined };
  }

  async function statusOf(words: RequestWords): Promise<number> {
    try {
      return (await send(words)).reply?.status ?? 200;
    } catch (error) {
      return (error as GatewayError).status;
    }
  }

  /** The redirect to the provider: returns the state and the cookie. */
  async function begin(): Promise<{ state: string; nonce: string; setCookie: string; cookie: string }> {
    const { reply } = await send({ path: "/app", headers: { accept: "text/html" } });
    const { searchParams } = new URL(reply?.headers.get("location") ?? "");
    const setCookie = reply?.headers.get("set-cookie") ?? "";
    const [cookie = ""] = setCookie.split(";");
    return { state: searchParams.get("state") ?? "", nonce: searchParams.get("nonce") ?? "", setCookie, cookie };
  }

  /** The callback from the provider. */
  async function finish(state: string, nonce: string, cookie: string, { claims, header }: IdToken = {}) {
    const exp = env.clock.now() / 1000 + 60;
    const idToken = signToken({
      key,
      claims: { iss: ISSUER, aud: "ui", sub: "alice", exp, nonce, ...claims },
      ...(header === undefined ? {} : { header }),
    });
    answers.set(`${ISSUER}/token`, { body: { id_token: idToken } });
    return send({ path: "/oidc/callback", query: `state=${state}&code=c`, headers: { cookie } });
  }

  return { begin, finish, send, statusOf, env };
}

const ENDPOINTS = {
  authorizationEndpoint: "https://login.example.com/authorize?tenant=a",
  tokenEndpoint: `${ISSUER}/token`,
  jwks: `${ISSUER}/keys`,
};

test("a provider without metadata has its endpoints in the configuration", async () => {
  const { begin, finish, send, env } = setUp("https://gateway.example", ENDPOINTS);
  const { reply } = await send({ path: "/app", headers: { accept: "text/html" } });
  const location = new URL(reply?.headers.get("location") ?? "");
  assert.equal(location.origin + location.pathname, "https://login.example.com/authorize");
  assert.equal(location.searchParams.get("tenant"), "a");
  const { state, nonce, cookie } = await begin();
  assert.equal((await finish(state, nonce, cookie)).reply?.status, 302);
  assert.ok(env.provider.requests.every(({ url }) => !url.includes(".well-known")));
});

for (const changes of [
  { tokenEndpoint: undefined },
  { jwks: undefined },
  { authorizationEndpoint: undefined, jwks: undefined },
  { tokenEndpoint: "http://other.example.com/token" },
])
  test(`rejects explicit endpoints with ${JSON.stringify(changes)}`, () => {
    const redirectUri = "https://gateway.example/oidc/callback";
    const parsed = oidc.schema.safeParse({ issuer: ISSUER, clientId: "ui", redirectUri, ...ENDPOINTS, ...changes });
    assert.equal(parsed.success, false);
  });

for (const base of ["https://gateway.example", "http://gateway.example:3000"]) {
  const prefix = base.startsWith("https") ? "__Host-gateway_" : "gateway_";

  test(`${base}: sign-in cookies are bound to the host and the state, and work once [D31] [D32]`, async () => {
    const { begin, finish } = setUp(base);
    const { state, nonce, setCookie, cookie } = await begin();
    assert.ok(setCookie.startsWith(`${prefix}signin_`) && !/domain/i.test(setCookie), setCookie);
    assert.equal(/; Secure/.test(setCookie), base.startsWith("https"));
    const other = await begin();
    const name = cookie.slice(0, cookie.indexOf("="));
    // A missing or forged cookie, or one of another sign-in, does not consume the state.
    for (const wrong of ["", `${name}=x.y`, `${name}=${other.cookie.slice(other.cookie.indexOf("=") + 1)}`])
      await assert.rejects(finish(state, nonce, wrong), { status: 401 }, wrong);
    // A cookie of the same name from another host of the domain comes first.
    const { reply } = await finish(state, nonce, `${name}=tossed; ${cookie}`);
    assert.equal(reply?.status, 302);
    const lines = reply?.headers.getAll("set-cookie") ?? [];
    assert.ok(lines.some((line) => line.startsWith(`${name}=;`) && line.includes("Max-Age=0")));
    assert.ok(lines.some((line) => line.startsWith(`${prefix}session_`)));
    await assert.rejects(finish(state, nonce, cookie), /finished before/);
  });

  test(`${base}: only pages of the same origin can use unsafe methods with the session [D30]`, async () => {
    const { begin, finish, statusOf } = setUp(base);
    const { state, nonce, cookie } = await begin();
    const { reply } = await finish(state, nonce, cookie);
    const [session = ""] = (reply?.headers.getAll("set-cookie") ?? [])
      .filter((line) => line.startsWith(`${prefix}session_`))
      .map((line) => line.split(";", 1)[0] ?? "");
    const origins: [origin: string | undefined, isOwn: boolean][] = [
      [base, true],
      [undefined, false],
      ["null", false],
      ["https://evil.example", false],
      [`${base}.evil.example`, false],
      [base.replace(/^https?/, (scheme) => (scheme === "http" ? "https" : "http")), false],
      // The request's own Host proves nothing: a page can use any name that resolves to the gateway.
      ["http://localhost:3000", false],
    ];
    for (const [origin, isOwn] of origins)
      for (const method of ["POST", "PUT", "PATCH", "DELETE"])
        for (const site of [undefined, "same-origin", "cross-site", "same-site"]) {
          const headers = {
            cookie: session,
            ...(origin === undefined ? {} : { origin }),
            ...(site === undefined ? {} : { "sec-fetch-site": site }),
          };
          const expected = isOwn && (site === undefined || site === "same-origin") ? 200 : 403;
          assert.equal(await statusOf({ method, path: "/app", headers }), expected, `${method} ${origin} ${site}`);
        }
    for (const [origin, isOwn] of origins) {
      const headers = { cookie: session, ...(origin === undefined ? {} : { origin }) };
      const status = await statusOf({ path: "/app", headers: { ...headers, upgrade: "websocket" } });
      assert.equal(status, isOwn ? 200 : 403, `WebSocket ${origin}`);
      if (!isOwn) assert.equal(await statusOf({ method: "POST", path: "/oidc/logout", headers }), 403);
    }
    assert.equal(await statusOf({ path: "/app", headers: { cookie: session } }), 200, "a read needs no Origin");
    // A session cookie of another name before it has no effect.
    const name = session.slice(0, session.indexOf("="));
    assert.equal(await statusOf({ path: "/app", headers: { cookie: `${name}=tossed; ${session}` } }), 200);
  });
}

const idTokens: [name: string, token: IdToken, message: RegExp | undefined][] = [
  ["for this client", {}, undefined],
  ["for this client in a list", { claims: { aud: ["ui"] } }, undefined],
  ["for several clients, with azp", { claims: { aud: ["ui", "api"], azp: "ui" } }, undefined],
  ["for several clients, without azp", { claims: { aud: ["ui", "api"] } }, /for another client/],
  ["for several clients, with another azp", { claims: { aud: ["ui", "api"], azp: "api" } }, /for another client/],
  ["for this client, with another azp", { claims: { azp: "api" } }, /for another client/],
  ["of the type at+jwt", { header: { typ: "at+jwt" } }, /access token in place of the ID token/],
  ["of the type application/AT+JWT", { header: { typ: "application/AT+JWT" } }, /access token in place/],
  ["of the type logout+jwt", { header: { typ: "logout+jwt" } }, /not an access token/],
  ["without a type", { header: { typ: undefined } }, undefined],
  ["with another nonce", { claims: { nonce: "x" } }, /not of this sign-in/],
  ["without a subject", { claims: { sub: undefined } }, /names no user/],
];
for (const [name, token, message] of idTokens)
  test(`an ID token ${name} is ${message === undefined ? "accepted" : "rejected"} [D33]`, async () => {
    const { begin, finish } = setUp("https://gateway.example");
    const { state, nonce, cookie } = await begin();
    if (message === undefined) assert.equal((await finish(state, nonce, cookie, token)).reply?.status, 302);
    else {
      await assert.rejects(finish(state, nonce, cookie, token), message);
      // A failed sign-in is not remembered as finished.
      assert.equal((await finish(state, nonce, cookie)).reply?.status, 302);
    }
  });
