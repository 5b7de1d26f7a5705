/**
 * Keys and tokens for tests. They are made with Node's crypto, because libraries refuse to create invalid tokens.
 */
import { constants, createHmac, generateKeyPairSync, type KeyObject, sign } from "node:crypto";

export interface SigningKey {
  readonly kid: string;
  readonly algorithm: string;
  readonly privateKey: KeyObject;
  readonly publicKey: KeyObject;
}

export interface TokenOptions {
  readonly key: SigningKey;
  readonly claims: Readonly<Record<string, unknown>>;
  /** Merged into the header; a member that is undefined is left out. */
  readonly header?: Readonly<Record<string, unknown>>;
  /** Instead of the serialized header. */
  readonly headerText?: string;
  /** Instead of the serialised claims. */
  readonly payload?: string | Buffer;
}

export function createSigningKey(algorithm: string, kid: string, bits = 2048): SigningKey {
  const pair = generate(algorithm, bits);
  return { kid, algorithm, ...pair };
}

export function publicJwk(key: SigningKey, extra: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  return { ...key.publicKey.export({ format: "jwk" }), kid: key.kid, use: "sig", ...extra };
}

export function keySetOf(...keys: readonly SigningKey[]): { keys: Record<string, unknown>[] } {
  return { keys: keys.map((key) => publicJwk(key)) };
}

export function signToken({ key, claims, header = {}, headerText, payload }: TokenOptions): string {
  const head = { alg: key.algorithm, typ: "JWT", kid: key.kid, ...header };
  const signed = `${encode(headerText ?? JSON.stringify(head))}.${encode(payload ?? JSON.stringify(claims))}`;
  return `${signed}.${signWith(key, signed).toString("base64url")}`;
}

/** The classic forgery: an HMAC with the public key's text as the secret. */
export function signWithPublicKey(key: SigningKey, claims: Readonly<Record<string, unknown>>): string {
  const signed = `${encode(JSON.stringify({ alg: "HS256", typ: "JWT", kid: key.kid }))}.${encode(JSON.stringify(claims))}`;
  const secret = key.publicKey.export({ format: "pem", type: "spki" });
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

export function encode(content: string | Buffer): string {
  return Buffer.from(content).toString("base64url");
}

function signWith(key: SigningKey, text: string): Buffer {
  const data = Buffer.from(text);
  const hash = `sha${key.algorithm.slice(2)}`;
  if (key.algorithm === "EdDSA") return sign(null, data, key.privateKey);
  if (key.algorithm.startsWith("ES")) return sign(hash, data, { key: key.privateKey, dsaEncoding: "ieee-p1363" });
  if (key.algorithm.startsWith("PS")) {
    const saltLength = constants.RSA_PSS_SALTLEN_DIGEST;
    return sign(hash, data, { key: key.privateKey, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength });
  }
  return sign(hash, data, key.privateKey);
}

function generate(algorithm: string, bits: number): { privateKey: KeyObject; publicKey: KeyObject } {
  if (algorithm === "EdDSA") return generateKeyPairSync("ed25519");
  const curve = { ES256: "P-256", ES384: "P-384", ES512: "P-521" }[algorithm];
  if (curve !== undefined) return generateKeyPairSync("ec", { namedCurve: curve });
  return generateKeyPairSync("rsa", { modulusLength: bits });
}

/** Where the fake clock starts: tokens of a test are made for that moment. */
export const START_MS = Date.UTC(2026, 0, 1);
