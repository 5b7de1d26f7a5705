import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { test } from "node:test";
import { decodeJwt, jwtVerify } from "jose";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import type { Exchange } from "../../core/exchange.ts";
import { backendAuth } from "./policy.ts";

const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const signingKey = privateKey.export({ type: "pkcs8", format: "pem" }) as string;

function setUp(jwtSign: object, more: object = {}) {
  const clock = fakeClock();
  const config = backendAuth.schema.parse({ jwtSign: { signingKey, ...jwtSign }, ...more });
  const hooks = backendAuth.compile(config, { ...testEnv, clock });
  const send = async (exchange: Exchange, name = "authorization"): Promise<string> => {
    await hooks.shape?.head?.(exchange);
    return exchange.request.headers.get(name) ?? "";
  };
  return { clock, send };
}

test("the backend gets a token with fixed and computed claims, and not the client's", async () => {
  const { clock, send } = setUp({
    kid: "k",
    claims: { iss: "gateway", roles: ["a"] },
    expressions: { sub: "jwt.sub", path: "request.path" },
    ttl: "60s",
  });
  const exchange = anExchange({ headers: { authorization: "Bearer client" } });
  exchange.attributes.jwt = { sub: "alice" };
  const [scheme, token = ""] = (await send(exchange)).split(" ");
  assert.equal(scheme, "Bearer");
  const { payload } = await jwtVerify(token, publicKey, { currentDate: new Date(clock.now()) });
  const iat = Math.floor(clock.now() / 1000);
  assert.deepEqual(payload, {
    iss: "gateway",
    roles: ["a"],
    sub: "alice",
    path: exchange.request.path,
    iat,
    exp: iat + 60,
  });
});

test("a token is signed again in the next second, and for another caller", async () => {
  const { clock, send } = setUp({ expressions: { sub: "jwt.sub" } });
  const tokenFor = (sub: string): Promise<string> => {
    const exchange = anExchange();
    exchange.attributes.jwt = { sub };
    return send(exchange);
  };
  const first = await tokenFor("alice");
  assert.equal(await tokenFor("alice"), first);
  assert.notEqual(await tokenFor("bob"), first);
  await clock.advance(1000);
  assert.notEqual(await tokenFor("alice"), first);
});

test("two requests that wait for their signatures at the same time get their own tokens", async () => {
  const { send } = setUp({ expressions: { sub: "jwt.sub" } });
  const tokens = await Promise.all(
    ["alice", "bob", "alice"].map((sub) => {
      const exchange = anExchange();
      exchange.attributes.jwt = { sub };
      return send(exchange);
    }),
  );
  const subjects = tokens.map((token) => decodeJwt(token.replace("Bearer ", "")).sub);
  assert.deepEqual(subjects, ["alice", "bob", "alice"]);
});

test("a claim without a value rejects the request", async () => {
  const { send } = setUp({ expressions: { sub: "jwt.sub" } });
  await assert.rejects(send(anExchange()), { status: 403 });
});

test("the token can be in another header", async () => {
  const { send } = setUp({}, { header: { name: "x-gateway-jwt" } });
  assert.match(await send(anExchange(), "x-gateway-jwt"), /^ey/);
});

for (const jwtSign of [
  { signingKey, claims: { exp: 1 } },
  { signingKey, expressions: { iat: "1" } },
  { signingKey, claims: { sub: "a" }, expressions: { sub: "jwt.sub" } },
  { signingKey, ttl: "2d" },
  { signingKey, alg: "HS256" },
  { claims: {} },
])
  test(`rejects the config ${JSON.stringify({ ...jwtSign, signingKey: undefined })}`, () => {
    assert.equal(backendAuth.schema.safeParse({ jwtSign }).success, false);
  });

test("a key that cannot sign fails the load and is not quoted", () => {
  const compile = (): unknown => setUp({ signingKey: "secret-text" });
  assert.throws(
    compile,
    (error: Error) => /private key in PEM/.test(error.message) && !/secret-text/.test(error.message),
  );
});
