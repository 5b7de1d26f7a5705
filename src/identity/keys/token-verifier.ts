/**
 * Verifies bearer tokens with one key set. Accepted signatures are cached under the token's digest, but issuer,
 * audience, and times are checked on every request.
 */
import { hash } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../base/clock.ts";
import { tokenPrincipal } from "../../core/principal.ts";
import { type ClaimRules, claimProblem } from "../tokens/claims.ts";
import {
  failure,
  freezeClaims,
  type ParsedToken,
  parseToken,
  type TokenClaims,
  type TokenProblem,
} from "../tokens/token.ts";
import { type KeySet, keysFor } from "./key-set.ts";
import { type VerificationKey, verifySignature } from "./verification-key.ts";

const MAX_CACHED_TOKENS = 8_192;

export type Verdict =
  | { readonly kind: "valid"; readonly claims: TokenClaims; readonly principal: string }
  | { readonly kind: "invalid"; readonly problem: TokenProblem }
  | { readonly kind: "unavailable"; readonly retryAfterSeconds: number; readonly detail: string };

type ValidVerdict = Extract<Verdict, { kind: "valid" }>;

export interface TokenVerifier {
  verify(token: string, rules: ClaimRules): Verdict | Promise<Verdict>;
  readonly keySet: KeySet;
}

export function createTokenVerifier(keySet: KeySet, clock: Clock): TokenVerifier {
  const verified = new LRUCache<string, ValidVerdict>({ max: MAX_CACHED_TOKENS });
  let generation = keySet.generation;

  function verify(token: string, rules: ClaimRules): Verdict | Promise<Verdict> {
    if (keySet.generation !== generation) {
      verified.clear();
      generation = keySet.generation;
    }
    // Keys that are too stale to be trusted also invalidate the cached verdicts.
    if (keySet.current() === undefined) verified.clear();
    const digest = hash("sha256", token, "base64");
    const known = verified.get(digest);
    if (known) return judged(known, rules);

    const parsed = parseToken(token);
    if (!parsed.ok) return { kind: "invalid", problem: parsed.problem };
    const verdict = checkSignature(parsed.value, token);
    if (verdict.kind === "valid") return remember(digest, verdict, rules);
    if (verdict.kind === "invalid" && verdict.problem.check !== "key") return verdict;

    // The key may have been published recently, so fetch once, within the key set's limits.
    const fetching = keySet.refresh();
    if (fetching === undefined) return verdict;
    return fetching.then(() => {
      const second = checkSignature(parsed.value, token);
      return second.kind === "valid" ? remember(digest, second, rules) : second;
    });
  }

  function checkSignature(token: ParsedToken, text: string): Verdict {
    const table = keySet.current();
    if (table === undefined) {
      const detail = `no keys from ${keySet.description} yet`;
      return { kind: "unavailable", retryAfterSeconds: keySet.retryAfterSeconds(), detail };
    }
    const keys = keysFor(token, table);
    if (!isKeys(keys)) return { kind: "invalid", problem: keys };
    if (keys.some((key) => verifySignature(token, key))) {
      const claims = freezeClaims(token.claims);
      return { kind: "valid", claims, principal: tokenPrincipal(claims, text) };
    }
    const detail = `the signature does not match ${keysTried(token, keys.length)} of ${keySet.description}`;
    // Without a `kid`, the token may be signed with a new key. A problem with `key` lets the caller fetch the keys
    // again.
    if (token.kid === undefined)
      return { kind: "invalid", problem: failure("key", "the token's key is not known", detail).problem };
    return { kind: "invalid", problem: failure("signature", "the token's signature is not valid", detail).problem };
  }

  function remember(digest: string, verdict: ValidVerdict, rules: ClaimRules): Verdict {
    const judgement = judged(verdict, rules);
    // Only accepted tokens are cached, because others would evict tokens that are in use.
    if (judgement.kind === "valid" && keySet.generation === generation) verified.set(digest, verdict);
    return judgement;
  }

  function judged(verdict: ValidVerdict, rules: ClaimRules): Verdict {
    const problem = claimProblem(verdict.claims, rules, clock.now());
    return problem ? { kind: "invalid", problem } : verdict;
  }

  return { verify, keySet };
}

function isKeys(found: ReturnType<typeof keysFor>): found is readonly VerificationKey[] {
  return Array.isArray(found);
}

function keysTried({ kid }: ParsedToken, count: number): string {
  if (kid !== undefined) return `the key ${kid}`;
  return count === 1 ? "the only key that fits" : `any of the ${count} keys that fit`;
}
