/**
 * Imports the public keys of a key set for verification (RFC 7517). Unusable keys, such as shared secrets, encryption
 * keys, short RSA keys, and unknown curves, are skipped with a reason.
 */

import { constants, createPublicKey, type KeyObject, verify } from "node:crypto";
import { lookupTable } from "../../base/lookup-table.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { readJson } from "../../json/read-json.ts";
import { ALGORITHMS, type Algorithm, type ParsedToken } from "../tokens/token.ts";

const KEY_SET = peerInput("identity-provider/key-set");

/** RFC 7518 section 3.3 requires this minimum. */
const MIN_RSA_BITS = 2048;
/** OpenSSL does not verify signatures with larger RSA keys. */
const MAX_RSA_BITS = 16_384;
export const MAX_KEYS = 100;

export interface VerificationKey {
  readonly kid: string | undefined;
  readonly algorithms: readonly Algorithm[];
  readonly key: KeyObject;
}

export interface ReadKeys {
  readonly keys: readonly VerificationKey[];
  readonly skipped: readonly string[];
}

/** The gateway requests key sets from providers, reads them from files, and has them in its configuration. */
export function readKeySet(text: string, input = KEY_SET): ReadKeys {
  let parsed: unknown;
  try {
    parsed = readJson(input, text);
  } catch (error) {
    throw new Error(`the key set ${(error as Error).message}`);
  }
  return readKeySetObject(parsed);
}

export function readKeySetObject(parsed: unknown): ReadKeys {
  const list = typeof parsed === "object" && parsed !== null ? (parsed as { keys?: unknown }).keys : undefined;
  if (!Array.isArray(list)) throw new Error("the key set has no `keys` list");
  const keys: VerificationKey[] = [];
  const skipped: string[] = [];
  for (const [index, jwk] of list.entries()) {
    if (index >= MAX_KEYS) {
      skipped.push(`${list.length - MAX_KEYS} keys after the first ${MAX_KEYS}`);
      break;
    }
    const read = readKey(jwk);
    if (typeof read === "string") skipped.push(`key ${index} (${keyLabel(jwk)}): ${read}`);
    else keys.push(read);
  }
  return { keys, skipped };
}

export function verifySignature(token: ParsedToken, key: VerificationKey): boolean {
  const { signed, signature, algorithm } = token;
  const hash = `sha${algorithm.slice(2)}`;
  try {
    if (algorithm === "EdDSA") return verify(null, signed, key.key, signature);
    if (algorithm.startsWith("RS")) return verify(hash, signed, key.key, signature);
    if (algorithm.startsWith("PS")) {
      const options = {
        key: key.key,
        padding: constants.RSA_PKCS1_PSS_PADDING,
        saltLength: constants.RSA_PSS_SALTLEN_DIGEST,
      };
      return verify(hash, signed, options, signature);
    }
    return verify(hash, signed, { key: key.key, dsaEncoding: "ieee-p1363" }, signature);
  } catch {
    return false;
  }
}

/** Only these members are imported, so the private members of a key are never loaded. */
const PUBLIC_MEMBERS = lookupTable<readonly string[]>({
  RSA: ["n", "e"],
  EC: ["crv", "x", "y"],
  OKP: ["crv", "x"],
});
const CURVE_ALGORITHM = lookupTable<Algorithm>({
  "P-256": "ES256",
  "P-384": "ES384",
  "P-521": "ES512",
  Ed25519: "EdDSA",
});

function readKey(value: unknown): VerificationKey | string {
  if (typeof value !== "object" || value === null) return "not an object";
  const jwk = value as Record<string, unknown>;
  const members =
    typeof jwk.kty === "string" && Object.hasOwn(PUBLIC_MEMBERS, jwk.kty) ? PUBLIC_MEMBERS[jwk.kty] : undefined;
  if (!members) return `kty ${String(jwk.kty)} cannot verify tokens`;
  if (jwk.use !== undefined && jwk.use !== "sig") return `its use is ${String(jwk.use)}, not sig`;
  if (jwk.key_ops !== undefined && !(Array.isArray(jwk.key_ops) && jwk.key_ops.includes("verify")))
    return "its key_ops do not include verify";
  if (jwk.kid !== undefined && typeof jwk.kid !== "string") return "its kid is not a string";

  const possible = possibleAlgorithms(jwk);
  if (possible.length === 0) return `curve ${String(jwk.crv)} is not supported`;
  const algorithms = jwk.alg === undefined ? possible : possible.filter((algorithm) => algorithm === jwk.alg);
  if (algorithms.length === 0) return `alg ${String(jwk.alg)} is not accepted for it`;

  let key: KeyObject;
  try {
    const publicPart = Object.fromEntries(["kty", ...members].map((member) => [member, jwk[member]]));
    key = createPublicKey({ key: publicPart, format: "jwk" });
  } catch {
    return "its parameters are not a valid key";
  }
  const bits = key.asymmetricKeyDetails?.modulusLength;
  if (jwk.kty === "RSA" && (bits === undefined || bits < MIN_RSA_BITS || bits > MAX_RSA_BITS)) {
    return `its ${bits} bits are not between ${MIN_RSA_BITS} and ${MAX_RSA_BITS}`;
  }
  return { kid: jwk.kid, algorithms, key };
}

function possibleAlgorithms(jwk: Record<string, unknown>): readonly Algorithm[] {
  if (jwk.kty === "RSA")
    return ALGORITHMS.filter((algorithm) => algorithm.startsWith("RS") || algorithm.startsWith("PS"));
  const algorithm = Object.hasOwn(CURVE_ALGORITHM, String(jwk.crv)) ? CURVE_ALGORITHM[String(jwk.crv)] : undefined;
  if (!algorithm || (algorithm === "EdDSA") !== (jwk.kty === "OKP")) return [];
  return [algorithm];
}

function keyLabel(jwk: unknown): string {
  const kid = typeof jwk === "object" && jwk !== null ? (jwk as { kid?: unknown }).kid : undefined;
  return typeof kid === "string" ? `kid ${kid.slice(0, 100)}` : "without kid";
}
