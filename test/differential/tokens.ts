/**
 * The differential test of tokens: PyJWT gives generated tokens the same verdict as the gateway, or one of the listed
 * reasons explains the difference.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { createInlineKeySet } from "../../src/identity/keys/key-set.ts";
import { createTokenVerifier, type Verdict } from "../../src/identity/keys/token-verifier.ts";
import { LEEWAY_SECONDS } from "../../src/identity/tokens/claims.ts";
import { ALGORITHMS } from "../../src/identity/tokens/token.ts";
import { fakeClock } from "../support/fake-clock.ts";
import { AUDIENCES, generateTokens, ISSUER, keySets } from "../support/identity/token-generator.ts";
import { reasonFor, STRICTER, type TokenReasons } from "../support/identity/token-reasons.ts";
import { START_MS } from "../support/identity/tokens.ts";

export interface TokenOptions {
  /** The Python of an environment with PyJWT and cryptography. */
  readonly python: string;
  readonly count: number;
  readonly seed: number;
}

export interface TokenReport {
  readonly findings: string[];
  readonly skipped: string | undefined;
  readonly version: string;
  /** `both accept`, `both reject`, and each reason for a difference → tokens. */
  readonly counts: Map<string, number>;
}

const PROGRAM = join(process.cwd(), "test/differential/pyjwt_judge.py");
const MAX_FINDINGS = 20;
const BATCH = 1_000;
const NOW = START_MS / 1000;

const isText = (value: unknown): boolean => value !== undefined && typeof value !== "number";

const STRICTER_THAN_PYJWT: TokenReasons = {
  ...STRICTER,
  "a time that is not a number (RFC 7519 section 2)": ({ claims: { exp, nbf, iat } }) =>
    isText(exp) || isText(nbf) || isText(iat),
};

/** Reasons why the gateway accepts tokens that PyJWT rejects. */
const LAXER_THAN_PYJWT: TokenReasons = {
  "the time of issue is in the future, which RFC 7519 does not reject": ({ claims }) =>
    Number(claims.iat) > NOW + LEEWAY_SECONDS,
  "one of the audiences is the gateway, and others are not strings": ({ claims: { aud } }) =>
    Array.isArray(aud) && aud.some((one) => typeof one !== "string"),
};

export async function runTokenDifferential({ python, count, seed }: TokenOptions): Promise<TokenReport> {
  const report = { findings: [] as string[], skipped: undefined as string | undefined, version: "", counts: new Map() };
  const child = spawn(python, [PROGRAM], { stdio: ["pipe", "pipe", "inherit"] });
  const failed = once(child, "error").then(([error]) => (error as Error).message);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => {
    const line = await Promise.race([lines.next(), failed.then((message) => ({ done: true, value: message }))]);
    if (line.done === true) throw new Error(`${python} ended: ${line.value ?? ""}`);
    return line.value as string;
  };
  try {
    const start = JSON.parse(await next()) as { version?: string; missing?: string };
    if (start.version === undefined) return { ...report, skipped: `PyJWT is not installed: ${start.missing}` };
    report.version = start.version;
  } catch (error) {
    return { ...report, skipped: (error as Error).message };
  }
  const config = {
    sets: keySets(),
    issuer: ISSUER,
    audiences: AUDIENCES,
    now: NOW,
    leeway: LEEWAY_SECONDS,
    algorithms: ALGORITHMS,
  };
  child.stdin.write(`${JSON.stringify(config)}\n`);
  const verifiers = keySets().map((set) => createTokenVerifier(createInlineKeySet(set), fakeClock(START_MS)));
  const rules = { issuer: ISSUER, audiences: AUDIENCES };
  const tokens = generateTokens(count, seed);
  for (let batch = take(tokens); batch.length > 0 && report.findings.length < MAX_FINDINGS; batch = take(tokens)) {
    child.stdin.write(batch.map(({ set, text }) => `${JSON.stringify([set, text])}\n`).join(""));
    for (const { set, text, ways } of batch) {
      const verdict = verifiers[set]?.verify(text, rules) as Verdict;
      const theirs = await next();
      const outcome = compare(verdict, theirs, text);
      if (outcome === undefined)
        report.findings.push(`set ${set}, ${ways}: gateway ${problemOf(verdict)}, PyJWT ${theirs}: ${text}`);
      else report.counts.set(outcome, (report.counts.get(outcome) ?? 0) + 1);
    }
  }
  child.stdin.end();
  return report;
}

function take<Value>(values: Iterator<Value>): Value[] {
  const batch: Value[] = [];
  while (batch.length < BATCH) {
    const { done, value } = values.next();
    if (done === true) break;
    batch.push(value);
  }
  return batch;
}

/** Returns undefined if no listed reason explains the difference. */
function compare(verdict: Verdict, theirs: string, text: string): string | undefined {
  const isValid = verdict.kind === "valid";
  const isTheirs = theirs === "valid";
  if (isValid && isTheirs) return "both accept";
  if (!isValid && !isTheirs) return "both reject";
  const reason = reasonFor(isValid ? LAXER_THAN_PYJWT : STRICTER_THAN_PYJWT, text);
  return reason && `only ${isValid ? "the gateway" : "PyJWT"} accepts: ${reason}`;
}

function problemOf(verdict: Verdict): string {
  return verdict.kind === "invalid" ? verdict.problem.detail : verdict.kind;
}
