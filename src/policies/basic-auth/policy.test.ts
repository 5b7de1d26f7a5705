import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import type { Exchange } from "../../core/exchange.ts";
import { basicAuth } from "./policy.ts";

const LONG = "pässwörd with a long tail ".repeat(4);
/** Made with libxcrypt and openssl. */
const HTPASSWD = `
# operators
bob:$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm
long:$2y$05$......................BkmvX8rn99j2/aOfr2ab52dkWojO826
empty:$2a$04$zVHmKQtGGQob.b/Nc7l9NO8UlrYcW05FiuCj/SxsFO/ZtiN9.mNzy
apr:$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0
wordy:$apr1$ab$ZlI.fNmZlGxhApTaZfcN71
sha:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=
`;

const hooks = basicAuth.compile({ htpasswd: HTPASSWD }, testEnv);

function basic(user: string, password: string): { authorization: string } {
  return { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` };
}

async function run(headers: Record<string, string>, subject = hooks): Promise<Exchange> {
  const exchange = anExchange({ headers });
  await subject.access?.head?.(exchange);
  return exchange;
}

const right: [string, string][] = [
  ["bob", "password"],
  ["long", LONG],
  ["empty", ""],
  ["apr", "secret"],
  ["wordy", "a rather long password indeed"],
  ["sha", "secret"],
];
for (const [user, password] of right) {
  test(`${user} is admitted with the right password and rejected with others`, async () => {
    const exchange = await run(basic(user, password));
    assert.deepEqual(exchange.attributes.basicAuth, { username: user });
    assert.deepEqual(exchange.credentials.headers, ["authorization"]);
    for (const wrong of [`x${password}`, "password2"]) {
      await assert.rejects(run(basic(user, wrong)), { code: "authentication_failed", status: 401 });
    }
  });
}

test("a verified password is cached", async () => {
  await run(basic("bob", "password"));
  assert.equal(hooks.access?.head?.(anExchange({ headers: basic("bob", "password") })), undefined);
});

const bad: [string, Record<string, string>][] = [
  ["nothing was sent", {}],
  ["the user is unknown", basic("eve", "password")],
  ["the user is a prototype member", basic("constructor", "password")],
  ["the scheme is another", { authorization: "Bearer Ym9iOnBhc3N3b3Jk" }],
  ["it is not base64", { authorization: "Basic ***" }],
  ["there is no colon", { authorization: `Basic ${Buffer.from("bob").toString("base64")}` }],
  ["it is not UTF-8", { authorization: `Basic ${Buffer.from([0xff, 0x3a, 0x61]).toString("base64")}` }],
];
for (const [name, headers] of bad) {
  test(`rejects with a challenge if ${name}`, async () => {
    await assert.rejects(run(headers), {
      code: "authentication_failed",
      headers: { "www-authenticate": 'Basic realm="gateway", charset="UTF-8"' },
    });
  });
}

test("mode optional rejects a wrong password; mode permissive admits all without a user", async () => {
  const optional = basicAuth.compile({ htpasswd: HTPASSWD, mode: "optional" }, testEnv);
  assert.equal((await run({}, optional)).attributes.basicAuth, undefined);
  await assert.rejects(run(basic("sha", "x"), optional), { code: "authentication_failed" });
  const permissive = basicAuth.compile({ htpasswd: HTPASSWD, mode: "permissive" }, testEnv);
  const exchange = await run(basic("sha", "x"), permissive);
  assert.equal(exchange.attributes.basicAuth, undefined);
  assert.deepEqual(exchange.credentials.headers, ["authorization"]);
  assert.equal(exchange.credentials.presented, undefined);
});

test("a password longer than 1,024 bytes is rejected without a check", async () => {
  const long = "x".repeat(1_025);
  // SHA-1 of the 1,024 and of the 1,025 bytes.
  const hash = (text: string) => `{SHA}${createHash("sha1").update(text).digest("base64")}`;
  const users = `fits:${hash(long.slice(1))}\nlong:${hash(long)}\nwide:${hash("ä".repeat(513))}`;
  const subject = basicAuth.compile({ htpasswd: users }, testEnv);
  assert.deepEqual((await run(basic("fits", long.slice(1)), subject)).attributes.basicAuth, { username: "fits" });
  for (const [user, password] of [
    ["long", long],
    ["wide", "ä".repeat(513)],
  ] as const)
    assert.throws(() => subject.access?.head?.(anExchange({ headers: basic(user, password) })), {
      code: "authentication_failed",
      status: 401,
    });
});

test("a client with too many checks gets 503; other clients do not [R70]", async () => {
  const busy = basicAuth.compile({ htpasswd: HTPASSWD, failureLimit: false }, testEnv);
  const checked = async (headers: Record<string, string>, source: string): Promise<string> => {
    try {
      const exchange = anExchange({ headers, source });
      await busy.access?.head?.(exchange);
      return exchange.attributes.basicAuth?.username ?? "nobody";
    } catch (error) {
      return (error as { code: string }).code;
    }
  };
  const hostile = Array.from({ length: 110 }, (_, i) => checked(basic("apr", `wrong-${i}`), "192.0.2.66"));
  assert.equal(await checked(basic("bob", "password"), "192.0.2.7"), "bob");
  const codes = await Promise.all(hostile);
  assert.equal(codes.filter((code) => code === "overloaded").length, 89);
  assert.equal(codes.filter((code) => code === "authentication_failed").length, 21);
});

test("the file path is relative to the configuration, and an error in it names the line", () => {
  const env = { ...testEnv, readFile: (path: string) => (path === "users" ? "bob:plain" : "") };
  assert.throws(
    () => basicAuth.compile({ htpasswd: { file: "users" } }, env),
    /line 1 \(bob\): the hash is not bcrypt/,
  );
  assert.throws(() => basicAuth.compile({ htpasswd: { file: "empty" } }, env), /no users/);
  assert.throws(() => basicAuth.compile({ htpasswd: "bob" }, env), { name: "ConfigError", path: "htpasswd" });
  assert.throws(
    () =>
      basicAuth.compile({ htpasswd: "a:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\na:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=" }, env),
    /twice/,
  );
  const tooCostly = "a:$2b$20$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm";
  assert.throws(() => basicAuth.compile({ htpasswd: tooCostly }, env), /cost of 20/);
});
