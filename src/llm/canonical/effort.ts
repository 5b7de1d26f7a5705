/**
 * How much a model is to think, between providers that ask for it in words and providers that ask in tokens.
 */
import { lookupTable } from "../../base/lookup-table.ts";
import type { Thinking } from "./conversation.ts";

/** As in Google's own OpenAI-compatible API. */
const BUDGETS = lookupTable<number>({
  none: 0,
  minimal: 512,
  low: 1024,
  medium: 8192,
  high: 24_576,
  xhigh: 24_576,
  max: 24_576,
});

/** Undefined for a word that nobody knows. */
export function budgetOf(thinking: Thinking): number | undefined {
  return thinking.budgetTokens ?? (thinking.effort === undefined ? undefined : BUDGETS[thinking.effort]);
}

export function effortOf({ effort, budgetTokens }: Thinking): string | undefined {
  if (effort !== undefined || budgetTokens === undefined) return effort;
  if (budgetTokens === 0) return "none";
  return budgetTokens <= 2048 ? "low" : budgetTokens <= 16_384 ? "medium" : "high";
}
