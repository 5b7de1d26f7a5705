import assert from "node:assert/strict";
import { test } from "node:test";
import { assertCpuBelow } from "../../../test/support/cpu-time.ts";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import {
  createSigningKey,
  encode,
  keySetOf,
  publicJwk,
  START_MS,
  signToken,
  signWithPublicKey,
  type TokenOptions,
} from "../../../test/support/identity/tokens.ts";
import type { TokenCheck } from "../tokens/token.ts";
import { createInlineKeySet } from "./key-set.ts";
import { createTokenVerifier, type Verdict } from "./token-verifier.ts";

const ISSUER = "http://localhost:8080/realms/mcp";
const RULES = { issuer: ISSUER, audiences: ["gateway", "api://gateway"] };
const NOW = START_MS / 1000;

const rsa = createSigningKey("RS256", "rsa-1");
const pss = createSigningKey("PS384", "pss-1");
const ec256 = createSigningKey("ES256", "ec-1");
const ec384 = createSigningKey("ES384", "ec-2");
const ec512 = createSigningKey("ES512", "ec-3");
const ed = createSigningKey("EdDSA", "ed-1");
const stranger = createSigningKey("RS256", "rsa-1");
const short = createSigningKey("RS256", "short", 1024);
const encryption = createSigningKey("RS256", "enc");
const signOnly = createSigningKey("RS256", "sign-only");
const bound = createSigningKey("RS256", "bound");

const KEYS = {
  keys: [
    ...keySetOf(rsa, pss, ec256, ec384, ec512, ed, short).keys,
    publicJwk(encryption, { use: "enc" }),
    publicJwk(signOnly, { key_ops: ["sign"] }),
    publicJwk(bound, { alg: "RS512" }),
    { kty: "oct", kid: "secret", k: encode("a shared secret of the provider") },
    "not a key",
  ],
};

const CLAIMS = { iss: ISSUER, sub: "alice", aud: "gateway", exp: NOW + 300, nbf: NOW - 10, iat: NOW - 10 };

function token(claims: Record<string, unknown> = {}, options: Partial<TokenOptions> = {}): string {
  return signToken({ key: rsa, claims: { ...CLAIMS, ...claims }, ...options });
}

function replacePart(index: number, part: string): string {
  const parts = token().split(".");
  parts[index] = part;
  return parts.join(".");
}

const good: Record<string, string> = {
  "an iat that is in the future [A3] [R22]": token({ iat: NOW + 86_400 }),
  RS256: token(),
  PS384: token({}, { key: pss }),
  ES256: token({}, { key: ec256 }),
  ES384: token({}, { key: ec384 }),
  ES512: token({}, { key: ec512 }),
  EdDSA: token({}, { key: ed }),
  "RS512 on an RSA key that is bound to it": token({}, { key: { ...bound, algorithm: "RS512" } }),
  "the second accepted audience": token({ aud: "api://gateway" }),
  "a list of audiences with ours in it": token({ aud: ["account", "gateway"] }),
  "expired 59 s ago [R22]": token({ exp: NOW - 59 }),
  "not valid for another 59 s [R22]": token({ nbf: NOW + 59 }),
  "issued 59 s ahead [R22]": token({ iat: NOW + 59 }),
  "no iat": token({ iat: undefined }),
  "a claim that is repeated: the last one counts (RFC 7519 section 4) [A4]": token(
    {},
    { payload: JSON.stringify(CLAIMS).replace("{", '{"aud":"other",') },
  ),
  "no nbf": token({ nbf: undefined }),
  "the access token type of RFC 9068": token({}, { header: { typ: "at+jwt" } }),
  "no type": token({}, { header: { typ: undefined } }),
  "no kid, where one key alone can have signed it": token({}, { key: ed, header: { kid: undefined } }),
  "no kid, where several keys fit": token({}, { header: { kid: undefined } }),
  "a claim that is called __proto__": token(
    {},
    { payload: JSON.stringify(CLAIMS).replace("{", '{"__proto__":{"admin":true},') },
  ),
  "an expiry with a fraction": token({ exp: NOW + 0.5 }),
};

const bad: Record<string, [TokenCheck, string]> = {
  "an empty text": ["form", ""],
  "one part [A4]": ["form", "abc"],
  "two parts [A4]": ["form", token().split(".").slice(0, 2).join(".")],
  "four parts [A4]": ["form", `${token()}.x`],
  "five parts (encrypted) [A4] [V16]": ["form", `${encode('{"alg":"dir","enc":"A256GCM"}')}..AA.AA.AA`],
  "an SQL injection [V2]": ["form", "' OR '1'='1"],
  "a part that is not base64url [A4]": ["form", replacePart(1, "a+b/")],
  "a part of impossible length [A4]": ["form", replacePart(2, "AAAAA")],
  padding: ["form", replacePart(2, "AAA=")],
  "claims that are not UTF-8 [A4]": ["form", token({}, { payload: Buffer.from([0x7b, 0xff, 0x7d]) })],
  "claims that are not JSON": ["form", token({}, { payload: "{" })],
  "claims that are a list": ["form", token({}, { payload: "[]" })],
  "a header that is not an object": ["form", replacePart(0, encode('"RS256"'))],
  "15 KB [A4]": ["form", token({ padding: "x".repeat(11_000) })],
  "a critical extension [A4]": ["form", token({}, { header: { crit: ["exp"] } })],
  "an unencoded payload [A4]": ["form", token({}, { header: { b64: false } })],
  compression: ["form", token({}, { header: { zip: "DEF" } })],
  "a kid that is a number": ["form", token({}, { header: { kid: 7 } })],
  "a logout token's type": ["form", token({}, { header: { typ: "logout+jwt" } })],
  "no signature": ["algorithm", replacePart(2, "")],
  "alg none [A1] [V15]": ["algorithm", token({}, { header: { alg: "none" } })],
  "alg None [A1] [V15]": ["algorithm", token({}, { header: { alg: "None" } })],
  "alg nOnE without signature [A1] [V15]": [
    "algorithm",
    `${encode('{"alg":"nOnE"}')}.${encode(JSON.stringify(CLAIMS))}.`,
  ],
  "no alg [A1]": ["algorithm", token({}, { header: { alg: undefined } })],
  "HS256 with the public key [A1] [V15]": ["algorithm", signWithPublicKey(rsa, CLAIMS)],
  "a key of another kind than alg [A1]": ["algorithm", token({}, { header: { kid: "ec-1" } })],
  "ES256 on the P-384 key [A1]": ["algorithm", token({}, { key: ec256, header: { kid: "ec-2" } })],
  "RS256 on a key that is bound to RS512 [A1]": ["algorithm", token({}, { key: bound })],
  "an unknown kid": ["key", token({}, { header: { kid: "other" } })],
  "a kid that names a prototype member": ["key", token({}, { header: { kid: "constructor" } })],
  "no kid, and none of the keys that fit signed it": ["key", token({}, { key: stranger, header: { kid: undefined } })],
  "the kid of a shared secret": ["key", token({}, { header: { kid: "secret" } })],
  "the kid of an encryption key [A6]": ["key", token({}, { key: encryption })],
  "the kid of a key without the verify operation [A6]": ["key", token({}, { key: signOnly })],
  "a 1024 bit RSA key [A6]": ["key", token({}, { key: short })],
  "another provider's key under our kid [A6]": ["signature", token({}, { key: stranger })],
  "its own key in the header [A2]": ["signature", token({}, { key: stranger, header: { jwk: publicJwk(stranger) } })],
  "a key URL in the header [A2]": [
    "signature",
    token({}, { key: stranger, header: { jku: "http://127.0.0.1:1/keys" } }),
  ],
  "a changed claim": ["signature", replacePart(1, encode(JSON.stringify({ ...CLAIMS, sub: "root" })))],
  "a signature of the wrong length": ["signature", replacePart(2, "AAAA")],
  "another issuer [A3]": ["issuer", token({ iss: "http://localhost:8080/realms/other" })],
  "an issuer with one slash more [A3]": ["issuer", token({ iss: `${ISSUER}/` })],
  "an issuer in a list [A3]": ["issuer", token({ iss: [ISSUER] })],
  "no issuer [A3]": ["issuer", token({ iss: undefined })],
  "another audience [A3]": ["audience", token({ aud: "account" })],
  "no audience [A3]": ["audience", token({ aud: undefined })],
  "an empty list of audiences [A3]": ["audience", token({ aud: [] })],
  "a longer audience [A3]": ["audience", token({ aud: "gateway2" })],
  "a shorter audience [A3]": ["audience", token({ aud: "gate" })],
  "an audience inside a nested list [A3]": ["audience", token({ aud: [["gateway"]] })],
  "expired 61 s ago [A3] [R22]": ["expiry", token({ exp: NOW - 61 })],
  "no expiry [A3]": ["expiry", token({ exp: undefined })],
  "an expiry that is a text [A3]": ["expiry", token({ exp: String(NOW + 300) })],
  "a claim that is repeated, the last time with another value [A4]": [
    "audience",
    token({}, { payload: JSON.stringify(CLAIMS).replace(/}$/, ',"aud":"other"}') }),
  ],
  "an infinite expiry [A3]": [
    "expiry",
    token({}, { payload: JSON.stringify(CLAIMS).replace(/"exp":\d+/, '"exp":1e400') }),
  ],
  "not valid for another 61 s [A3] [R22]": ["notBefore", token({ nbf: NOW + 61 })],
  "an iat that is a text [A3]": ["notBefore", token({ iat: "now" })],
  "an nbf that is a text [A3]": ["notBefore", token({ nbf: "soon" })],
  "an ID token [A8]": ["claims", token({ at_hash: "x" })],
};

const verifier = createTokenVerifier(createInlineKeySet(KEYS), fakeClock());

function verifyNow(text: string): Verdict {
  const verdict = verifier.verify(text, RULES);
  assert.ok(!(verdict instanceof Promise), "a fixed key set answers at once");
  return verdict;
}

for (const [name, text] of Object.entries(good)) {
  test(`accepts ${name} [S5-1]`, () => {
    const first = verifyNow(text);
    assert.equal(first.kind, "valid", first.kind === "invalid" ? first.problem.detail : "");
    assert.equal(verifyNow(text).kind, "valid", "and again from the cache");
  });
}

for (const [name, [check, text]] of Object.entries(bad)) {
  test(`rejects ${name} [S5-1]`, () => {
    const verdict = verifyNow(text);
    assert.equal(verdict.kind, "invalid");
    const { problem } = verdict as Extract<Verdict, { kind: "invalid" }>;
    assert.equal(problem.check, check, problem.detail);
    const signature = text.split(".")[2];
    if (signature && signature.length > 20) assert.ok(!`${problem.detail}${problem.reason}`.includes(signature));
    assert.doesNotMatch(problem.reason, /account|realms|alice/, "the client is told no values");
  });
}

test("no token takes more than 5 ms of the loop [A4] [V16]", () => {
  const fresh = createTokenVerifier(createInlineKeySet(KEYS), fakeClock());
  const texts = [...Object.values(good), ...Object.values(bad).map(([, text]) => text)];
  for (const text of texts) {
    assertCpuBelow(5, () => void fresh.verify(text, RULES));
  }
});

test("a cached token is rejected after it expires [A9]", async () => {
  const clock = fakeClock();
  const subject = createTokenVerifier(createInlineKeySet(KEYS), clock);
  const text = token({ exp: NOW + 30 });
  assert.equal((subject.verify(text, RULES) as Verdict).kind, "valid");
  await clock.advance(89_000);
  assert.equal((subject.verify(text, RULES) as Verdict).kind, "valid");
  await clock.advance(1_000);
  assert.equal((subject.verify(text, RULES) as Verdict).kind, "invalid");
});

test("policies that share a key set each check issuer and audience, even of a cached token [S2.2-2]", () => {
  const text = token();
  assert.equal(verifyNow(text).kind, "valid");
  const other = verifier.verify(text, { issuer: ISSUER, audiences: ["other"] }) as Verdict;
  assert.equal(other.kind, "invalid");
});

test("a required claim that is missing is named in the detail", () => {
  const verdict = verifier.verify(token(), { ...RULES, requiredClaims: ["sub", "email"] }) as Verdict;
  assert.match(verdict.kind === "invalid" ? verdict.problem.detail : "", /the claim email is required/);
});

test("claims are deeply frozen", () => {
  const verdict = verifyNow(token({ realm_access: { roles: ["user"] } }));
  assert.ok(verdict.kind === "valid");
  const roles = (verdict.claims.realm_access as { roles: string[] }).roles;
  assert.throws(() => roles.push("admin"), TypeError);
});

test("claims nested thousands of levels deep are handled", () => {
  const deep = token({}, { payload: `{"a":${"[".repeat(2500)}${"]".repeat(2500)}}` });
  assert.equal(verifyNow(deep).kind, "invalid");
});

test("the details name the expected and the actual value", () => {
  const errorDetail = (text: string): string => {
    const verdict = verifyNow(text);
    return verdict.kind === "invalid" ? verdict.problem.detail : "";
  };
  assert.equal(
    errorDetail(token({ aud: ["account"] })),
    "the token's audience is [account], expected one of [gateway, api://gateway]",
  );
  assert.match(errorDetail(token({ iss: `${ISSUER}/` })), /differ only in the trailing slash/);
  assert.match(errorDetail(token({}, { header: { kid: "other" } })), /kid is other, the key set has \[rsa-1, /);
  assert.equal(errorDetail(token({ exp: NOW - 61 })), "exp was 61 s ago, 60 s are tolerated");
});

test("rejects a key set without usable keys with the reason", () => {
  assert.throws(
    () => createInlineKeySet({ keys: [publicJwk(short)] }),
    /no usable key: key 0 \(kid short\): its 1024 bits/,
  );
  assert.throws(() => createInlineKeySet("{"), /not JSON/);
  assert.throws(() => createInlineKeySet({}), /no `keys` list/);
});
