/**
 * What an LLM call is charged with: an estimate at admission, the counts of its usage afterwards (spec 3 and 8).
 * Counts come from backends, so they are held within sane bounds, and what is missing is not zero.
 */
import type { LlmFacts } from "../../core/facts.ts";
import type { Outcome } from "../../core/policy.ts";

/** Usage comes from outside: a count beyond this is a lie or a defect, and must not make the arithmetic inexact. */
const MAX_AMOUNT = 1_000_000_000;

/** A count as it may be charged: a whole number, 0 … 1e9; anything else counts as nothing known. */
export function countOf(value: unknown): number | undefined {
  if (typeof value !== "number" || Number.isNaN(value)) return undefined;
  return Math.trunc(Math.max(0, Math.min(MAX_AMOUNT, value)));
}

/** At least one: concurrent calls whose size nobody could estimate must not all pass on the last token. */
export function estimatedTokens(llm: LlmFacts | undefined): number {
  return Math.max(1, countOf(llm?.estimatedTokens) ?? 1);
}

/** The most output that the request asks for; none, where it does not say. */
export function outputTokens(llm: LlmFacts | undefined): number {
  return countOf(llm?.maxOutputTokens) ?? 0;
}

/** undefined: nothing is known, the estimate stays. */
export function usedTokens(llm: LlmFacts | undefined, outcome: Outcome): number | undefined {
  const input = countOf(llm?.inputTokens);
  const output = countOf(llm?.outputTokens);
  if (input !== undefined && output !== undefined) return input + output;
  const known = countOf(llm?.totalTokens) ?? output ?? input;
  if (known !== undefined) return known;
  return answeredWithoutWork(outcome) ? 0 : undefined;
}

/**
 * A refusal or an unreachable provider has used no tokens. A timeout or a client that left says nothing:
 * the provider may have worked all the same.
 */
function answeredWithoutWork(outcome: Outcome): boolean {
  return outcome.end === "complete" && outcome.status !== undefined && outcome.status >= 400 && outcome.status !== 504;
}
