import assert from "node:assert/strict";
import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { test } from "node:test";
import { readKeySetObject, verifySignature } from "../keys/verification-key.ts";
import { createJwtSigner, type SigningAlgorithm } from "./sign-jwt.ts";
import { readUnverified } from "./token.ts";

const pem = (key: KeyObject): string => key.export({ type: "pkcs8", format: "pem" }) as string;
const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const p256 = generateKeyPairSync("ec", { namedCurve: "P-256" });
const p384 = generateKeyPairSync("ec", { namedCurve: "P-384" });
const edwards = generateKeyPairSync("ed25519");

const cases: [keys: typeof rsa, alg: SigningAlgorithm | undefined, expected: string][] = [
  [rsa, undefined, "RS256"],
  [rsa, "RS384", "RS384"],
  [rsa, "RS512", "RS512"],
  [p256, undefined, "ES256"],
  [p384, "ES384", "ES384"],
  [edwards, undefined, "EdDSA"],
];
for (const [{ privateKey, publicKey }, alg, expected] of cases)
  test(`a ${privateKey.asymmetricKeyType} key with ${alg ?? "no algorithm"} signs with ${expected}`, async () => {
    const token = await createJwtSigner(pem(privateKey), { alg, kid: "k1" })('{"sub":"é"}');
    const [header = ""] = token.split(".");
    assert.deepEqual(JSON.parse(Buffer.from(header, "base64url").toString()), { alg: expected, typ: "JWT", kid: "k1" });
    const parsed = readUnverified(token);
    assert.deepEqual(parsed?.claims, { sub: "é" });
    const [key] = readKeySetObject({ keys: [publicKey.export({ format: "jwk" })] }).keys;
    assert.ok(parsed && key && verifySignature(parsed, key));
  });

for (const [name, key, alg, message] of [
  ["no key", "secret-text", undefined, /not an unencrypted private key/],
  ["another algorithm", pem(p256.privateKey), "RS256", /the key does not fit RS256: use ES256/],
  [
    "a curve without an algorithm",
    pem(generateKeyPairSync("ec", { namedCurve: "secp256k1" }).privateKey),
    undefined,
    /the key must be/,
  ],
  [
    "a short RSA key",
    pem(generateKeyPairSync("rsa", { modulusLength: 1024 }).privateKey),
    undefined,
    /the key must be/,
  ],
] as const)
  test(`${name} is rejected, and the message does not quote the key`, () => {
    assert.throws(
      () => createJwtSigner(key, { alg }),
      (error: Error) => message.test(error.message) && !error.message.includes("secret-text"),
    );
  });
