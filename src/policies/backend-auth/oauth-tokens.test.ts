import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { test } from "node:test";
import { jwtVerify } from "jose";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { type Answer, createFakeFetch } from "../../../test/support/identity/fake-fetch.ts";
import type { Exchange } from "../../core/exchange.ts";
import { backendAuth } from "./policy.ts";

const URL = "https://login.example.com/token";
const ISSUED: Answer = { body: { access_token: "issued", token_type: "Bearer", expires_in: 600 } };
const GRANT = "urn:ietf:params:oauth:grant-type:";
const TYPE = "urn:ietf:params:oauth:token-type:";

function setUp(config: object, answers: Readonly<Record<string, Answer>> = { [URL]: ISSUED }) {
  const fake = createFakeFetch(answers);
  const clock = fakeClock();
  const env = { ...testEnv, fetch: fake.fetch, clock };
  const hooks = backendAuth.compile(backendAuth.schema.parse(config), env);
  const send = async (exchange: Exchange = withToken("client-token")): Promise<string | undefined> => {
    await hooks.shape?.head?.(exchange);
    return exchange.request.headers.get("authorization");
  };
  const form = (index = 0): Record<string, string | string[]> => {
    const sent = new URLSearchParams(fake.requests[index]?.body?.toString());
    return Object.fromEntries(
      [...sent.keys()].map((name) => {
        const values = sent.getAll(name);
        return [name, values.length === 1 ? String(values[0]) : values];
      }),
    );
  };
  return { fake, clock, send, form };
}

function withToken(token: string): Exchange {
  return anExchange({ headers: { authorization: `Bearer ${token}` } });
}

function tokenUntil(clock: { now(): number }, ms: number): string {
  return `e30.${Buffer.from(JSON.stringify({ exp: (clock.now() + ms) / 1000 })).toString("base64url")}.s`;
}

test("a token exchange sends the client's token and the target, and the backend gets the issued token", async () => {
  const { fake, send, form } = setUp({
    oauth: {
      tokenUrl: URL,
      clientId: "a:b",
      clientSecret: "s ü",
      audiences: ["x", "y"],
      resources: ["https://shop"],
      scopes: ["r", "w"],
    },
  });
  assert.equal(await send(), "Bearer issued");
  assert.deepEqual(form(), {
    grant_type: `${GRANT}token-exchange`,
    subject_token: "client-token",
    subject_token_type: `${TYPE}access_token`,
    requested_token_type: `${TYPE}access_token`,
    audience: ["x", "y"],
    resource: "https://shop",
    scope: "r w",
  });
  const basic = Buffer.from("a%3Ab:s%20%C3%BC").toString("base64");
  assert.equal(fake.requests[0]?.headers?.authorization, `Basic ${basic}`);
});

test("a token that an authentication policy withheld from the backend is exchanged", async () => {
  const { send, form } = setUp({ oauth: { tokenUrl: URL } });
  const exchange = anExchange();
  exchange.credentials.headers = ["authorization"];
  exchange.credentials.presented = { header: "authorization", value: "Bearer verified" };
  assert.equal(await send(exchange), "Bearer issued");
  assert.deepEqual(exchange.credentials.headers, []);
  assert.equal(form().subject_token, "verified");
});

test("a JWT bearer grant sends the token as an assertion, with the client in the body and own parameters", async () => {
  const parameters = { requested_token_use: "on_behalf_of" };
  const oauth = { tokenUrl: URL, grant: "jwtBearer", clientId: "c", clientSecret: "s", clientAuth: "post", parameters };
  const { fake, send, form } = setUp({ oauth });
  assert.equal(await send(), "Bearer issued");
  assert.deepEqual(form(), {
    grant_type: `${GRANT}jwt-bearer`,
    assertion: "client-token",
    requested_token_use: "on_behalf_of",
    client_id: "c",
    client_secret: "s",
  });
  assert.equal(fake.requests[0]?.headers?.authorization, undefined);
});

test("client credentials need no token of the client, and one token serves all clients", async () => {
  const { fake, send, form } = setUp({ oauth: { tokenUrl: URL, grant: "clientCredentials", clientId: "c" } });
  assert.equal(await send(anExchange()), "Bearer issued");
  assert.equal(await send(withToken("b")), "Bearer issued");
  assert.deepEqual(form(), { grant_type: "client_credentials", client_id: "c" });
  assert.equal(fake.requests.length, 1);
});

test("cross app access exchanges the ID token for an assertion, and the assertion for a token", async () => {
  const shop = "https://auth.shop.example.com/token";
  const { send, form } = setUp(
    {
      crossAppAccess: {
        identityProvider: { tokenUrl: URL, clientId: "agent", clientSecret: "s" },
        resourceServer: { tokenUrl: shop, clientId: "agent-at-shop", clientSecret: "t", clientAuth: "post" },
        audience: "https://auth.shop.example.com",
        scopes: ["orders.read"],
      },
    },
    {
      [URL]: { body: { access_token: "assertion", token_type: "N_A", issued_token_type: `${TYPE}id-jag` } },
      [shop]: ISSUED,
    },
  );
  assert.equal(await send(), "Bearer issued");
  assert.deepEqual(form(0), {
    grant_type: `${GRANT}token-exchange`,
    subject_token: "client-token",
    subject_token_type: `${TYPE}id_token`,
    requested_token_type: `${TYPE}id-jag`,
    audience: "https://auth.shop.example.com",
    scope: "orders.read",
  });
  assert.deepEqual(form(1), {
    grant_type: `${GRANT}jwt-bearer`,
    assertion: "assertion",
    scope: "orders.read",
    client_id: "agent-at-shop",
    client_secret: "t",
  });
});

test("a token is kept per client until it or the client's token expires, at most 5 minutes", async () => {
  const { fake, clock, send } = setUp({ oauth: { tokenUrl: URL } });
  await Promise.all([send(withToken("a")), send(withToken("a"))]);
  assert.equal(fake.requests.length, 1, "requests at the same time share one");
  await send(withToken("b"));
  assert.equal(fake.requests.length, 2, "another client needs its own");
  await clock.advance(299_000);
  await send(withToken("a"));
  assert.equal(fake.requests.length, 2);
  await clock.advance(2_000);
  await send(withToken("a"));
  assert.equal(fake.requests.length, 3);
  const short = tokenUntil(clock, 10_000);
  await send(withToken(short));
  await clock.advance(11_000);
  await send(withToken(short));
  assert.equal(fake.requests.length, 5);
});

for (const headers of [{}, { authorization: "Basic YTpi" }, { authorization: "Bearer" }] as Record<string, string>[])
  test(`a client with ${JSON.stringify(headers)} gets 401, and no server is called`, async () => {
    const { fake, send } = setUp({ oauth: { tokenUrl: URL } });
    await assert.rejects(async () => send(anExchange({ headers })), { status: 401 });
    assert.equal(fake.requests.length, 0);
  });

const failures: [name: string, answer: Answer, status: number][] = [
  ["the client's token is refused", { status: 400, body: { error: "invalid_grant" } }, 401],
  ["the gateway's client is refused", { status: 401, body: { error: "invalid_client" } }, 503],
  [
    "the gateway's client may not exchange tokens",
    {
      status: 400,
      body: { error: "invalid_request", error_description: "Standard token exchange is not enabled for the client" },
    },
    503,
  ],
  ["the server fails", { status: 500, body: { error: "invalid_grant" } }, 503],
  ["there is no token", { body: { token_type: "Bearer" } }, 503],
  ["the token is no header value", { body: { access_token: "a\r\nx: y", expires_in: 60 } }, 503],
  ["the response is not JSON", { body: "<html>" }, 503],
];
for (const [name, answer, status] of failures)
  test(`${name}: ${status}, and the backend gets nothing`, async () => {
    const { send } = setUp({ oauth: { tokenUrl: URL } }, { [URL]: answer });
    const exchange = withToken("client-token");
    await assert.rejects(send(exchange), (error: Error & { status?: number; detail?: string }) => {
      assert.equal(error.status, status);
      assert.ok(!JSON.stringify([error.message, error.detail]).includes("client-token"));
      return true;
    });
  });

test("the gateway's client can authenticate with a signed JWT", async () => {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const clientKey = privateKey.export({ type: "pkcs8", format: "pem" });
  const client = { clientId: "gateway", clientAuth: "privateKeyJwt", clientKey, clientKeyId: "k" };
  const { fake, clock, send, form } = setUp({ oauth: { tokenUrl: URL, ...client } });
  await send();
  const { client_id, client_secret, client_assertion_type, client_assertion } = form();
  assert.deepEqual([client_id, client_secret], ["gateway", undefined]);
  assert.equal(client_assertion_type, "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
  assert.equal(fake.requests[0]?.headers?.authorization, undefined);
  const { payload, protectedHeader } = await jwtVerify(String(client_assertion), publicKey, {
    currentDate: new Date(clock.now()),
    issuer: "gateway",
    subject: "gateway",
    audience: URL,
  });
  assert.equal(protectedHeader.kid, "k");
  assert.equal(Number(payload.exp) - Number(payload.iat), 60);
  await send(withToken("b"));
  assert.notEqual(form(1).client_assertion, client_assertion, "the ID of each assertion differs");
});

test("a description that names a known cause is explained, and its text is left out", async () => {
  const description = "Client is not within the token audience client-token";
  const answer = { status: 403, body: { error: "access_denied", error_description: description } };
  const { send } = setUp({ oauth: { tokenUrl: URL } }, { [URL]: answer });
  await assert.rejects(send(), {
    status: 401,
    detail:
      "login.example.com answered with status 403 (access_denied): the client's token is not for the gateway; " +
      "add an audience mapper with the gateway's client to the client that requested the token",
  });
});

test("a server that cannot be reached is tried again by the next request", async () => {
  const { fake, send } = setUp({ oauth: { tokenUrl: URL } });
  fake.down = true;
  await assert.rejects(send(), { status: 503 });
  fake.down = false;
  assert.equal(await send(), "Bearer issued");
});

for (const config of [
  { oauth: {} },
  { oauth: { tokenUrl: "nowhere" } },
  { oauth: { tokenUrl: URL, clientSecret: "s" } },
  { oauth: { tokenUrl: URL, clientId: "c", clientAuth: "privateKeyJwt" } },
  { oauth: { tokenUrl: URL, clientId: "c", clientKey: "k" } },
  { oauth: { tokenUrl: URL, clientId: "c", clientSecret: "s", clientAuth: "privateKeyJwt", clientKey: "k" } },
  { oauth: { tokenUrl: URL, grant: "password" } },
  { oauth: { tokenUrl: URL }, key: "k" },
  { crossAppAccess: { audience: "a" } },
])
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(backendAuth.schema.safeParse(config).success, false);
  });
