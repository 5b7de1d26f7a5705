/**
 * Compares token verification with `jose` on 20,000 generated tokens: both give the same verdict, or the gateway is
 * stricter for a listed reason. It accepts nothing that `jose` rejects.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTVerifyGetKey, jwtVerify } from "jose";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { AUDIENCES, generateTokens, ISSUER, keySets } from "../../../test/support/identity/token-generator.ts";
import { reasonFor, STRICTER } from "../../../test/support/identity/token-reasons.ts";
import { START_MS } from "../../../test/support/identity/tokens.ts";
import { createInlineKeySet } from "../keys/key-set.ts";
import { createTokenVerifier, type Verdict } from "../keys/token-verifier.ts";
import { LEEWAY_SECONDS } from "./claims.ts";
import { ALGORITHMS } from "./token.ts";

const COUNT = 20_000;
const SEED = 20_261_115;
const RULES = { issuer: ISSUER, audiences: AUDIENCES };

test(`jose gives ${COUNT} generated tokens the same verdict, or the gateway is stricter for a listed reason [A1] [A2] [A3] [A4] [A6] [V15] [V16]`, {
  timeout: 600_000,
}, async (t) => {
  const judges = keySets().map((set) => ({
    ours: createTokenVerifier(createInlineKeySet(set), fakeClock()),
    theirs: createLocalJWKSet(set as unknown as JSONWebKeySet),
  }));
  const counts = { valid: 0, invalid: 0 };
  const reasons = new Map<string, number>();
  const wrong: string[] = [];
  const judge = async ({ text, ways, set }: { text: string; ways: string; set: number }): Promise<void> => {
    const { ours, theirs } = judges[set] as (typeof judges)[number];
    const verdict = ours.verify(text, RULES) as Verdict;
    const isValid = verdict.kind === "valid";
    const isTheirs = await joseAccepts(text, theirs);
    counts[isValid ? "valid" : "invalid"] += 1;
    if (isValid === isTheirs) return;
    const reason = isValid ? undefined : reasonFor(STRICTER, text);
    if (reason !== undefined) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    else {
      const detail = verdict.kind === "invalid" ? verdict.problem.detail : "";
      wrong.push(`set ${set}, ${ways}: ours ${verdict.kind} ${detail}, jose ${isTheirs}: ${text.slice(0, 300)}`);
    }
  };
  let group: Promise<void>[] = [];
  for (const token of generateTokens(COUNT, SEED)) {
    group.push(judge(token));
    if (group.length < 100) continue;
    await Promise.all(group);
    group = [];
  }
  await Promise.all(group);
  t.diagnostic(
    `${counts.valid} valid, ${counts.invalid} invalid; stricter: ${JSON.stringify(Object.fromEntries(reasons))}`,
  );
  assert.deepEqual(wrong.slice(0, 10), [], `${wrong.length} verdicts differ`);
  assert.ok(counts.valid > COUNT / 10 && counts.invalid > COUNT / 10, "both verdicts are tested");
});

async function joseAccepts(token: string, keys: JWTVerifyGetKey): Promise<boolean> {
  const options = {
    issuer: ISSUER,
    audience: AUDIENCES,
    algorithms: [...ALGORITHMS],
    clockTolerance: LEEWAY_SECONDS,
    currentDate: new Date(START_MS),
    requiredClaims: ["exp"],
  };
  try {
    await jwtVerify(token, keys, options);
    return true;
  } catch (error) {
    if (!(error instanceof errors.JWKSMultipleMatchingKeys)) return false;
    // As jose documents: if several keys match, each is tried.
    for await (const key of error) {
      const accepted = await jwtVerify(token, key, options).then(
        () => true,
        () => false,
      );
      if (accepted) return true;
    }
    return false;
  }
}
