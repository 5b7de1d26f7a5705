/**
 * Which rules can be judged by a request's head, and which need what its body says. Decided once, from what the
 * expressions read: a route without such rules never waits for a body.
 */
import type { Expression } from "../../cel/expression.ts";
import type { AccessRules } from "../../identity/access/access-rules.ts";

/** What a body can say before the call is made; all else below `llm` comes with the answer. */
const KNOWN_IN_TIME: ReadonlySet<string> = new Set(["llm", "llm.requestModel", "llm.streaming"]);

export interface SplitRules {
  readonly early: AccessRules;
  /** undefined if no rule needs the body. */
  readonly late: AccessRules | undefined;
}

export function splitRules(rules: AccessRules): SplitRules {
  const isLate = (rule: Expression): boolean => ["llm", "mcp", "a2a"].some((name) => rule.attributes.has(name));
  const isEarly = (rule: Expression): boolean => !isLate(rule);
  // One allow rule is enough, and it may be one that waits: so they all do.
  const allowsLate = rules.allow.some(isLate);
  const late: AccessRules = {
    allow: allowsLate ? rules.allow : [],
    deny: rules.deny.filter(isLate),
    require: rules.require.filter(isLate),
  };
  const early: AccessRules = {
    allow: allowsLate ? [] : rules.allow,
    deny: rules.deny.filter(isEarly),
    require: rules.require.filter(isEarly),
  };
  return { early, late: late.allow.length + late.deny.length + late.require.length === 0 ? undefined : late };
}

export function readsBody(rules: AccessRules, attribute: "llm" | "mcp"): boolean {
  return [...rules.allow, ...rules.deny, ...rules.require].some((rule) => rule.attributes.has(attribute));
}

/** What a rule reads although it cannot be known when the rule is asked. */
export function readsTooEarly(rule: Expression): string[] {
  return [...rule.paths].filter((path) => path.startsWith("llm.") && !KNOWN_IN_TIME.has(path));
}
