/**
 * Parses a JSON Web Token before any cryptography (RFC 7515, RFC 7519). It rejects encrypted, compressed, unsigned,
 * oversized, and HMAC tokens, so only small tokens with a supported algorithm reach the signature check.
 */

import { type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { readMembers } from "../../json/read-json.ts";

const TOKEN = peerInput("client/token");

export const MAX_TOKEN_BYTES = TOKEN.maxBytes;

/** All accepted algorithms are asymmetric, so that a public key cannot be used to sign. */
export const ALGORITHMS = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
] as const;
export type Algorithm = (typeof ALGORITHMS)[number];

export type TokenClaims = Readonly<Record<string, unknown>>;

export interface ParsedToken {
  readonly algorithm: Algorithm;
  readonly kid: string | undefined;
  readonly type: string | undefined;
  /** The signature covers the first two segments exactly as received. */
  readonly signed: Buffer;
  readonly signature: Buffer;
  readonly claims: TokenClaims;
}

export type TokenCheck =
  | "form"
  | "algorithm"
  | "key"
  | "signature"
  | "issuer"
  | "audience"
  | "expiry"
  | "notBefore"
  | "claims";

export interface TokenProblem {
  readonly check: TokenCheck;
  /** The client sees this reason, so it contains no values of the token. */
  readonly reason: string;
  /** The operator sees this detail. It may contain claims, but never the token. */
  readonly detail: string;
}

export type TokenResult<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly problem: TokenProblem };

/** The unused bits of the last character are zero (RFC 4648 section 3.5), so that a token has only one spelling. */
const BASE64URL = /^(?:[\w-]{4})*(?:[\w-]{4}|[\w-][AQgw]|[\w-]{2}[AEIMQUYcgkosw048])$/;
const KNOWN = new Set<string>(ALGORITHMS);
const utf8 = new TextDecoder("utf-8", { fatal: true });

export function parseToken(token: string, input = TOKEN): TokenResult<ParsedToken> {
  if (token.length > input.maxBytes) return malformed(`it has ${token.length} bytes, the maximum is ${input.maxBytes}`);
  const parts = token.split(".");
  if (parts.length === 5) return malformed("it is encrypted (five parts), which is not supported");
  const [header, payload, signature] = parts;
  if (parts.length !== 3 || header === undefined || payload === undefined || signature === undefined) {
    return malformed(`it has ${parts.length} parts, expected 3`);
  }
  if (signature === "") return failure("algorithm", "the token is not signed", "the signature is empty");
  for (const part of [header, payload, signature]) {
    if (!BASE64URL.test(part)) return malformed("a part is not base64url");
  }

  const fields = parseObject(input, header);
  if (!fields) return malformed("its header is not a JSON object");
  const problem = headerProblem(fields);
  if (problem) return { ok: false, problem };
  const claims = parseObject(input, payload);
  if (!claims) return malformed("its claims are not a JSON object");

  return {
    ok: true,
    value: {
      algorithm: fields.alg as Algorithm,
      kid: fields.kid as string | undefined,
      type: typeof fields.typ === "string" ? fields.typ : undefined,
      signed: Buffer.from(`${header}.${payload}`, "latin1"),
      signature: Buffer.from(signature, "base64url"),
      claims,
    },
  };
}

/** Parses a token without verifying its signature, so the result must never grant access. */
export function readUnverified(token: string, input = TOKEN): ParsedToken | undefined {
  const parsed = parseToken(token, input);
  return parsed.ok ? parsed.value : undefined;
}

export function failure(check: TokenCheck, reason: string, detail: string): { ok: false; problem: TokenProblem } {
  return { ok: false, problem: { check, reason, detail } };
}

function malformed(detail: string): { ok: false; problem: TokenProblem } {
  return failure("form", "the token is malformed", `the token is malformed: ${detail}`);
}

/** `jwk`, `jku`, `x5u`, and `x5c` are ignored, because keys come only from the configured key set. */
function headerProblem(header: TokenClaims): TokenProblem | undefined {
  const { alg, kid, typ } = header;
  if (typeof alg !== "string" || !KNOWN.has(alg)) {
    const seen = typeof alg === "string" ? show(alg) : "missing";
    return failure(
      "algorithm",
      "the token's algorithm is not accepted",
      `alg is ${seen}, accepted are ${ALGORITHMS.join(", ")}`,
    ).problem;
  }
  // Critical extensions are not supported (RFC 7515 section 4.1.11). `b64` and `zip` change the signed content.
  for (const name of ["crit", "b64", "zip", "enc"]) {
    if (Object.hasOwn(header, name)) return malformed(`its header has \`${name}\`, which is not supported`).problem;
  }
  if (kid !== undefined && typeof kid !== "string") return malformed("its `kid` is not a string").problem;
  // Logout tokens, DPoP proofs, and others are signed with the same keys but are not access tokens (RFC 8725 section
  // 3.11).
  if (typeof typ === "string" && /\+jwt$/i.test(typ) && !/^(application\/)?at\+jwt$/i.test(typ)) {
    return failure("form", "the token is not an access token", `typ is ${show(typ)}, which is not an access token`)
      .problem;
  }
  return undefined;
}

function parseObject(input: PeerInput<"JWT">, part: string): TokenClaims | undefined {
  try {
    return readMembers(input, utf8.decode(Buffer.from(part, "base64url")));
  } catch {
    return undefined;
  }
}

/** Freezes the claims to a limited depth, because all requests with the token share them. */
export function freezeClaims<Value extends object>(value: Value, depth = 16): Value {
  if (depth > 0) {
    for (const child of Object.values(value)) {
      if (typeof child === "object" && child !== null) freezeClaims(child, depth - 1);
    }
  }
  return Object.freeze(value);
}

export function show(value: unknown): string {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "missing");
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
