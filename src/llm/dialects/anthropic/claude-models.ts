/**
 * What differs between Claude models: how many tokens they write at most, and how they are asked to think. A name that
 * is not known is taken for a new model.
 */

import type { Members } from "../../../json/json.ts";
import type { Thinking } from "../../canonical/conversation.ts";
import { budgetOf } from "../../canonical/effort.ts";
import { compact } from "../../canonical/fields.ts";
import { type Losses, NOT_SUPPORTED } from "../../canonical/losses.ts";

/** The provider wants a limit, other clients need not give one: as much as the model can. */
const LIMITS: readonly (readonly [RegExp, number])[] = [
  [/claude-3-(?:opus|sonnet|haiku)|claude-(?:2|instant)/, 4096],
  [/claude-3-5/, 8192],
  [/claude-opus-4(?:-0|-1|-2|@|$)/, 32_000],
  [/claude-(?:3-7|sonnet-4|haiku-4|opus-4)/, 64_000],
];
const DEFAULT_LIMIT = 32_000;

export function claudeMaxTokens(model: string): number {
  return LIMITS.find(([pattern]) => pattern.test(model))?.[1] ?? DEFAULT_LIMIT;
}

/** These think by a budget and know no effort. */
const BY_BUDGET = /claude-3-7|claude-(?:opus|sonnet)-4(?:-0|-1|-2\d{3}|@|$)|claude-(?:sonnet|haiku)-4-5/;
const NEVER = /claude-(?:3-5|3-opus|3-sonnet|3-haiku|2|instant)/;
const EFFORTS: Readonly<Record<string, string>> = {
  minimal: "low",
  low: "low",
  medium: "medium",
  high: "high",
  xhigh: "xhigh",
  max: "max",
};
const MIN_BUDGET = 1024;
/** Room for the answer behind the thoughts. */
const ANSWER_TOKENS = 1024;

export interface ClaudeThinking {
  readonly thinking: Members | undefined;
  readonly effort: string | undefined;
  /** The output must be allowed at least so much. */
  readonly minTokens: number;
}

const NOTHING: ClaudeThinking = { thinking: undefined, effort: undefined, minTokens: 0 };

/** `isUnsigned`: the history has no thoughts where the provider wants them back. */
export function claudeThinking(
  asked: Thinking | undefined,
  model: string,
  losses: Losses,
  isUnsigned: boolean,
): ClaudeThinking {
  if (asked === undefined || asked.effort === "none" || asked.budgetTokens === 0) return NOTHING;
  const { effort, budgetTokens, isAdaptive, param } = asked;
  const word = effort === undefined ? undefined : EFFORTS[effort];
  if (effort !== undefined && word === undefined) {
    losses.lose(param, effort, `${JSON.stringify(effort)} ${NOT_SUPPORTED}`);
    return NOTHING;
  }
  if (NEVER.test(model)) {
    losses.lose(param, effort ?? budgetTokens);
    return NOTHING;
  }
  const isByBudget = BY_BUDGET.test(model);
  const byEffort = isByBudget ? undefined : word;
  if (budgetTokens === undefined && !isByBudget)
    return { thinking: isAdaptive ? { type: "adaptive" } : undefined, effort: byEffort, minTokens: 0 };
  const budget = Math.max(MIN_BUDGET, budgetOf(asked) ?? MIN_BUDGET);
  if (isUnsigned) return { thinking: undefined, effort: byEffort, minTokens: 0 };
  return {
    thinking: compact({ type: "enabled", budget_tokens: budget }),
    effort: byEffort,
    minTokens: budget + ANSWER_TOKENS,
  };
}
