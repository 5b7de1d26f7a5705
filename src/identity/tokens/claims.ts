/**
 * Checks token claims that depend on the policy and the clock: issuer, audience, and times. The checks run on every
 * request, even if the signature's verdict is cached. Comparisons are exact, so no trailing slash is ignored and no
 * prefix matches.
 */
import { failure, show, type TokenClaims, type TokenProblem } from "./token.ts";

export const LEEWAY_SECONDS = 60;

export interface ClaimRules {
  readonly issuer: string;
  readonly audiences: readonly string[];
  /** These claims are required in addition to `iss`, `aud`, and `exp`. */
  readonly requiredClaims?: readonly string[];
  /** True to accept an ID token, which browser sign-ins use instead of an access token. */
  readonly isIdToken?: boolean;
}

export function claimProblem(claims: TokenClaims, rules: ClaimRules, nowMs: number): TokenProblem | undefined {
  const { iss, aud, exp } = claims;
  if (iss !== rules.issuer) return issuerProblem(iss, [rules.issuer]);
  if (!hasAudience(aud, rules.audiences)) return audienceProblem(aud, rules.audiences);

  const nowSeconds = nowMs / 1000;
  if (typeof exp !== "number" || !Number.isFinite(exp)) {
    return failure("expiry", "the token has no valid expiry", `exp is ${show(exp)}, a number is required`).problem;
  }
  if (nowSeconds >= exp + LEEWAY_SECONDS) {
    const agoSeconds = Math.round(nowSeconds - exp);
    return failure("expiry", "the token is expired", `exp was ${agoSeconds} s ago, ${LEEWAY_SECONDS} s are tolerated`)
      .problem;
  }
  const invalid =
    timeProblem("nbf", claims.nbf) ?? timeProblem("iat", claims.iat) ?? beginProblem(claims.nbf, nowSeconds);
  if (invalid) return invalid;
  // An ID token describes the user to the client and grants no access, although its audience may match.
  const isIdToken = claims.at_hash !== undefined || claims.c_hash !== undefined || claims.typ === "ID";
  if (isIdToken && rules.isIdToken !== true) {
    return failure("claims", "the token is not an access token", "it is an ID token; send the access token instead")
      .problem;
  }
  for (const name of rules.requiredClaims ?? []) {
    if (!Object.hasOwn(claims, name)) {
      return failure("claims", "the token lacks a required claim", `the claim ${name} is required and missing`).problem;
    }
  }
  return undefined;
}

function timeProblem(name: "nbf" | "iat", value: unknown): TokenProblem | undefined {
  if (value === undefined || (typeof value === "number" && Number.isFinite(value))) return undefined;
  const detail = `${name} is ${show(value)}, a number is expected`;
  return failure("notBefore", "the token's times are not valid", detail).problem;
}

/** A token is valid from `nbf` on, within the leeway. A future `iat` alone does not reject it. */
function beginProblem(nbf: unknown, nowSeconds: number): TokenProblem | undefined {
  if (typeof nbf !== "number" || nowSeconds >= nbf - LEEWAY_SECONDS) return undefined;
  const aheadSeconds = Math.round(nbf - nowSeconds);
  const detail = `nbf is ${aheadSeconds} s ahead, ${LEEWAY_SECONDS} s are tolerated: check the clocks`;
  return failure("notBefore", "the token is not valid yet", detail).problem;
}

function hasAudience(aud: unknown, accepted: readonly string[]): boolean {
  if (typeof aud === "string") return accepted.includes(aud);
  return Array.isArray(aud) && aud.some((one) => typeof one === "string" && accepted.includes(one));
}

export function issuerProblem(iss: unknown, accepted: readonly string[]): TokenProblem {
  const expected = accepted.length === 1 ? `${accepted[0]}` : `one of [${accepted.join(", ")}]`;
  let detail = `the token's issuer is ${show(iss)}, expected ${expected}`;
  if (typeof iss === "string" && accepted.some((one) => iss === `${one}/` || `${iss}/` === one)) {
    detail += ": they differ only in the trailing slash: set `issuer` exactly as in the token";
  }
  return failure("issuer", "the token's issuer is not accepted", detail).problem;
}

function audienceProblem(aud: unknown, accepted: readonly string[]): TokenProblem {
  const seen = aud === undefined ? "missing" : `[${(Array.isArray(aud) ? aud : [aud]).map(show).join(", ")}]`;
  const detail = `the token's audience is ${seen}, expected one of [${accepted.join(", ")}]`;
  return failure("audience", "the token's audience is not accepted", detail).problem;
}
