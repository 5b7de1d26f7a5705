/**
 * Signs JWTs with a private key of the gateway, for servers that verify the gateway with its public key.
 */
import type { KeyObject } from "node:crypto";
import { createRequire } from "node:module";
import { onDemand } from "../../base/on-demand.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readPrivateKey } from "../../http/certificates.ts";

const KEY = peerInput("file/credentials");

const require = createRequire(import.meta.url);
const library = onDemand<typeof import("./signing-library.ts")>(() => require("./signing-library.js"));

export const SIGNING_ALGORITHMS = ["RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA"] as const;
export type SigningAlgorithm = (typeof SIGNING_ALGORITHMS)[number];

export interface JwtSignerOptions {
  /** Default: the algorithm that fits the key, RS256 for RSA. */
  readonly alg?: SigningAlgorithm | undefined;
  readonly kid?: string | undefined;
}

/** Signs claims that are a JSON object. The signature is computed outside of the event loop. */
export type SignJwt = (claims: string) => Promise<string>;

const MIN_RSA_BITS = 2048;
const CURVES: Readonly<Record<string, SigningAlgorithm>> = { prime256v1: "ES256", secp384r1: "ES384" };

/** Throws an Error without the key if the text is not a private key in PEM that fits the algorithm. */
export function createJwtSigner(pem: string, { alg, kid }: JwtSignerOptions = {}): SignJwt {
  const key = parseKey(pem);
  const fitting = algorithmsOf(key);
  const [first] = fitting;
  if (first === undefined)
    throw new Error("the key must be RSA with at least 2048 bits, EC with P-256 or P-384, or Ed25519");
  if (alg !== undefined && !fitting.includes(alg))
    throw new Error(`the key does not fit ${alg}: use ${fitting.join(", ")}`);
  const used = alg ?? first;
  const header = { alg: used, typ: "JWT", ...(kid === undefined ? {} : { kid }) };
  return (claims) => library().signCompact(header, claims, key);
}

function parseKey(pem: string): KeyObject {
  try {
    return readPrivateKey(KEY, pem);
  } catch {
    // The original error may quote the key, so it is discarded.
    throw new Error("the key is not an unencrypted private key in PEM");
  }
}

function algorithmsOf({ asymmetricKeyType: type, asymmetricKeyDetails: details }: KeyObject): SigningAlgorithm[] {
  if (type === "rsa") return (details?.modulusLength ?? 0) < MIN_RSA_BITS ? [] : ["RS256", "RS384", "RS512"];
  if (type === "ed25519") return ["EdDSA"];
  const curve = type === "ec" ? CURVES[details?.namedCurve ?? ""] : undefined;
  return curve === undefined ? [] : [curve];
}
