/** The published examples of RFC 7515, 7517, 7520, and 8037: other implementations made these keys and signatures. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { type Algorithm, parseToken } from "../tokens/token.ts";
import { createInlineKeySet } from "./key-set.ts";
import { createTokenVerifier, type Verdict } from "./token-verifier.ts";
import { readKeySet, readKeySetObject, type VerificationKey, verifySignature } from "./verification-key.ts";

const JOE = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
const JOE_EXPIRES_MS = 1_300_819_380_000;
const BILBO =
  "SXTigJlzIGEgZGFuZ2Vyb3VzIGJ1c2luZXNzLCBGcm9kbywgZ29pbmcgb3V0IHlvdXIgZG9vci4gWW91IHN0ZXAgb250byB0aGUgcm9hZCwgYW5kIGlmIHlvdSBkb24ndCBrZWVwIHlvdXIgZmVldCwgdGhlcmXigJlzIG5vIGtub3dpbmcgd2hlcmUgeW91IG1pZ2h0IGJlIHN3ZXB0IG9mZiB0by4";
const BILBO_KID = "bilbo.baggins@hobbiton.example";

const JOE_RSA = {
  kty: "RSA",
  n: "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
  e: "AQAB",
};
const JOE_P256 = {
  kty: "EC",
  crv: "P-256",
  x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
  y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
  d: "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI",
};
const BILBO_RSA = {
  kty: "RSA",
  kid: BILBO_KID,
  use: "sig",
  n: "n4EPtAOCc9AlkeQHPzHStgAbgs7bTZLwUBZdR8_KuKPEHLd4rHVTeT-O-XV2jRojdNhxJWTDvNd7nqQ0VEiZQHz_AJmSCpMaJMRBSFKrKb2wqVwGU_NsYOYL-QtiWN2lbzcEe6XC0dApr5ydQLrHqkHHig3RBordaZ6Aj-oBHqFEHYpPe7Tpe-OfVfHd1E6cS6M1FZcD1NNLYD5lFHpPI9bTwJlsde3uhGqC0ZCuEHg8lhzwOHrtIQbS0FVbb9k3-tVTU4fg_3L_vniUFAKwuCLqKnS2BYwdq_mzSnbLY7h_qixoR7jig3__kRhuaxwUkRz5iaiQkqgc5gHdrNP5zw",
  e: "AQAB",
};

interface Vector {
  readonly name: string;
  readonly algorithm: Algorithm;
  readonly key: Readonly<Record<string, unknown>>;
  readonly token: string;
}

const vectors: readonly Vector[] = [
  {
    name: "RFC 7515 appendix A.2",
    algorithm: "RS256",
    key: JOE_RSA,
    token: `eyJhbGciOiJSUzI1NiJ9.${JOE}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw`,
  },
  {
    name: "RFC 7515 appendix A.3",
    algorithm: "ES256",
    key: JOE_P256,
    token: `eyJhbGciOiJFUzI1NiJ9.${JOE}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q`,
  },
  {
    name: "RFC 7515 appendix A.4",
    algorithm: "ES512",
    key: {
      kty: "EC",
      crv: "P-521",
      x: "AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk",
      y: "ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2",
    },
    token:
      "eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA.AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn",
  },
  {
    name: "RFC 8037 appendix A.4",
    algorithm: "EdDSA",
    key: { kty: "OKP", crv: "Ed25519", x: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" },
    token:
      "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
  },
  {
    name: "RFC 7520 section 4.1",
    algorithm: "RS256",
    key: BILBO_RSA,
    token: `eyJhbGciOiJSUzI1NiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9.${BILBO}.MRjdkly7_-oTPTS3AXP41iQIGKa80A0ZmTuV5MEaHoxnW2e5CZ5NlKtainoFmKZopdHM1O2U4mwzJdQx996ivp83xuglII7PNDi84wnB-BDkoBwA78185hX-Es4JIwmDLJK3lfWRa-XtL0RnltuYv746iYTh_qHRD68BNt1uSNCrUCTJDt5aAE6x8wW1Kt9eRo4QPocSadnHXFxnt8Is9UzpERV0ePPQdLuW3IS_de3xyIrDaLGdjluPxUAhb6L2aXic1U12podGU0KLUQSE_oI-ZnmKJ3F4uOZDnd6QZWJushZ41Axf_fcIe8u9ipH84ogoree7vjbU5y18kDquDg`,
  },
  {
    name: "RFC 7520 section 4.2",
    algorithm: "PS384",
    key: BILBO_RSA,
    token: `eyJhbGciOiJQUzM4NCIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9.${BILBO}.cu22eBqkYDKgIlTpzDXGvaFfz6WGoz7fUDcfT0kkOy42miAh2qyBzk1xEsnk2IpN6-tPid6VrklHkqsGqDqHCdP6O8TTB5dDDItllVo6_1OLPpcbUrhiUSMxbbXUvdvWXzg-UD8biiReQFlfz28zGWVsdiNAUf8ZnyPEgVFn442ZdNqiVJRmBqrYRXe8P_ijQ7p8Vdz0TTrxUeT3lm8d9shnr2lfJT8ImUjvAA2Xez2Mlp8cBE5awDzT0qI0n6uiP1aCN_2_jLAeQTlqRHtfa64QQSUmFAAjVKPbByi7xho0uTOcbH510a6GYmJUAfmWjwZ6oD4ifKo8DYM-X72Eaw`,
  },
  {
    name: "RFC 7520 section 4.3",
    algorithm: "ES512",
    key: {
      kty: "EC",
      kid: BILBO_KID,
      use: "sig",
      crv: "P-521",
      x: "AHKZLLOsCOzz5cY97ewNUajB957y-C-U88c3v13nmGZx6sYl_oJXu9A5RkTKqjqvjyekWF-7ytDyRXYgCF5cj0Kt",
      y: "AdymlHvOiLxXkEhayXQnNCvDX4h9htZaCJN34kfmC6pV5OhQHiraVySsUdaQkAgDPrwQrJmbnX9cwlGfP-HqHZR1",
    },
    token: `eyJhbGciOiJFUzUxMiIsImtpZCI6ImJpbGJvLmJhZ2dpbnNAaG9iYml0b24uZXhhbXBsZSJ9.${BILBO}.AE_R_YZCChjn4791jSQCrdPZCNYqHXCTZH0-JZGYNlaAjP2kqaluUIIUnC9qvbu9Plon7KRTzoNEuT4Va2cmL1eJAQy3mtPBu_u_sDDyYjnAMDxXPn7XrT0lw-kvAD890jl8e2puQens_IEKBpHABlsbEPX6sFY8OcGDqoRuBomu9xQ2`,
  },
];

for (const { name, algorithm, key, token } of vectors) {
  const { keys, skipped } = readKeySetObject({ keys: [key] });
  const [imported] = keys as [VerificationKey];
  const [header = "", payload = "", signature = ""] = token.split(".");
  const verifies = (signed: string, bytes: Buffer, alg = algorithm): boolean =>
    verifySignature(
      {
        algorithm: alg,
        kid: undefined,
        type: undefined,
        signed: Buffer.from(signed),
        signature: bytes,
        claims: {},
      },
      imported,
    );

  test(`${algorithm}: the example of ${name} verifies, and nothing changed does [A1]`, () => {
    const bytes = Buffer.from(signature, "base64url");
    assert.deepEqual(skipped, []);
    assert.ok(imported.algorithms.includes(algorithm));
    assert.equal(verifies(`${header}.${payload}`, bytes), true);
    for (const at of [0, bytes.length >> 1, bytes.length - 1]) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] as number) ^ 1;
      assert.equal(verifies(`${header}.${payload}`, changed), false, `byte ${at}`);
    }
    assert.equal(verifies(`${header}.${payload}A`, bytes), false);
    assert.equal(verifies(`${header}.${payload}`, bytes.subarray(1)), false);
    assert.equal(verifies(`${header}.${payload}`, Buffer.concat([bytes, Buffer.of(0)])), false);
    for (const other of imported.algorithms)
      if (other !== algorithm) assert.equal(verifies(`${header}.${payload}`, bytes, other), false, other);
  });
}

const JOE_RULES = { issuer: "joe", audiences: ["gateway"] };

for (const { name, key, token } of vectors.slice(0, 2))
  test(`only the audience is missing in the token of ${name} [A1]`, () => {
    const verifier = createTokenVerifier(createInlineKeySet({ keys: [key] }), fakeClock(JOE_EXPIRES_MS - 1));
    const verdict = verifier.verify(token, JOE_RULES) as Verdict;
    assert.equal(verdict.kind === "invalid" ? verdict.problem.check : verdict.kind, "audience");
    const parsed = parseToken(token);
    assert.deepEqual(parsed.ok && parsed.value.claims, {
      iss: "joe",
      exp: JOE_EXPIRES_MS / 1000,
      "http://example.com/is_root": true,
    });
  });

for (const [name, token, reason] of [
  [
    "HS256 of RFC 7515 appendix A.1",
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    /algorithm/,
  ],
  [
    "HS256 of RFC 7520 section 4.4",
    `eyJhbGciOiJIUzI1NiIsImtpZCI6IjAxOGMwYWU1LTRkOWItNDcxYi1iZmQ2LWVlZjMxNGJjNzAzNyJ9.${BILBO}.s0h6KThzkfBBBkLspW1h84VsJZFTsPPqMDA7g1Md7p0`,
    /algorithm/,
  ],
  ["the unsecured token of RFC 7515 appendix A.5", `eyJhbGciOiJub25lIn0.${JOE}.`, /not signed/],
  [
    "the unencoded payload of RFC 7797 section 4.2",
    "eyJhbGciOiJIUzI1NiIsImI2NCI6ZmFsc2UsImNyaXQiOlsiYjY0Il19.JC4wMg.A5dxf2s96_n5FLueVuW1Z_vh161FwXZC4YLPff6dmDY",
    /algorithm/,
  ],
  ["claims that are not JSON, of RFC 8037 appendix A.4", vectors[3]?.token ?? "", /malformed/],
] as const)
  test(`rejects ${name} [A1]`, () => {
    const parsed = parseToken(token);
    assert.match(parsed.ok ? "accepted" : parsed.problem.reason, reason);
  });

test("a signature has one spelling: the unused bits of its last character are zero", () => {
  const { token } = vectors[1] as Vector;
  assert.equal(parseToken(token).ok, true);
  for (const last of "RSTUfAgw01") {
    const parsed = parseToken(token.slice(0, -1) + last);
    if ("AQgw".includes(last)) assert.equal(parsed.ok, true, last);
    else assert.match(parsed.ok ? "accepted" : parsed.problem.reason, /malformed/, last);
  }
});

const RFC_7517_RSA = {
  kty: "RSA",
  n: "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
  e: "AQAB",
  alg: "RS256",
  kid: "2011-04-29",
};
const RFC_7517_EC = {
  kty: "EC",
  crv: "P-256",
  x: "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
  y: "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
  use: "enc",
  kid: "1",
};

test("the key set of RFC 7517 appendix A.1 has one key that verifies tokens, and it keeps to its algorithm", () => {
  const { keys, skipped } = readKeySet(JSON.stringify({ keys: [RFC_7517_EC, RFC_7517_RSA] }));
  assert.deepEqual(
    keys.map(({ kid, algorithms }) => [kid, algorithms]),
    [["2011-04-29", ["RS256"]]],
  );
  assert.deepEqual(skipped, ["key 0 (kid 1): its use is enc, not sig"]);
  const { n, e } = RFC_7517_RSA;
  assert.deepEqual(keys[0]?.key.export({ format: "jwk" }), { kty: "RSA", n, e });
});

test("the private key of RFC 7515 appendix A.3 is read as a public key, and a shared secret is not read", () => {
  const { keys, skipped } = readKeySetObject({
    keys: [
      JOE_P256,
      { kty: "oct", kid: "FdFYFzERwC2uCBB46pZQi4GG85LujR8obt-KWRBICVQ", alg: "A128KW", k: "GawgguFyGrWKav7AX4VKUg" },
      { kty: "oct", use: "sig", alg: "HS256", k: "hJtXIZ2uSN5kbQfbtTNWbpdmhkV8FJG-Onbc6mxCcYg" },
    ],
  });
  const { kty, crv, x, y } = JOE_P256;
  assert.deepEqual(
    keys.map(({ key }) => [key.type, key.export({ format: "jwk" })]),
    [["public", { kty, crv, x, y }]],
  );
  assert.deepEqual(
    skipped.map((text) => text.replace(/^.*: /, "")),
    ["kty oct cannot verify tokens", "kty oct cannot verify tokens"],
  );
});

test("the X25519 and Ed448 keys of RFC 8037 are no keys for tokens", () => {
  const { keys, skipped } = readKeySetObject({
    keys: [
      { kty: "OKP", crv: "X25519", kid: "Bob", x: "3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08" },
      { kty: "OKP", crv: "Ed448", x: "X9dEm1m0Yf0s54fsYWrUah2hNCSFpw4fig6nXYDpZ3jt8SR2m0bHBhvWeD3x5Q9s0foavq_oJWGA" },
    ],
  });
  assert.deepEqual(keys, []);
  assert.equal(skipped.length, 2);
});
