/**
 * Compiles the patterns of a guard. Patterns use RE2 syntax and run with a time budget. A text that exceeds the budget
 * counts as a match.
 */
import { peerInput } from "../../base/peer-inputs.ts";
import { compileRegex, type Regex } from "../../cel/functions/regex.ts";
import type { TextGuard, TextMatch } from "../request/llm-call.ts";

export type BuiltinPattern = "ssn" | "creditCard" | "phoneNumber" | "email" | "caSin";

interface GuardRule {
  readonly builtin?: BuiltinPattern | undefined;
  readonly pattern?: string | undefined;
}

interface CompiledRule {
  readonly regex: Regex;
  readonly mask: string;
  /** True if the pattern matches the empty string at every position, and therefore matches every text. */
  readonly matchesAnything: boolean;
  /** Quickly rules out texts without a match, so that the regular expression need not run on them. */
  mayMatch(text: string): boolean;
}

const BUILTINS: Readonly<
  Record<BuiltinPattern, { readonly pattern: string; readonly mask: string; readonly hint: RegExp }>
> = {
  ssn: { pattern: "\\b\\d{3}-\\d{2}-\\d{4}\\b", mask: "<SSN>", hint: /\d-\d\d-\d/ },
  creditCard: {
    pattern: "\\b(?:\\d{4}[ -]?\\d{4}[ -]?\\d{4}[ -]?\\d{4}|3[47]\\d{2}[ -]?\\d{6}[ -]?\\d{5})\\b",
    mask: "<CREDIT_CARD>",
    hint: /\d{4}[ -]?\d{4}/,
  },
  phoneNumber: {
    pattern: "(?:\\+\\d{1,3}[ .-]?)?\\(?\\b\\d{3}\\)?[ .-]?\\d{3}[ .-]?\\d{4}\\b",
    mask: "<PHONE_NUMBER>",
    hint: /\d{3}[ .-]?\d{4}/,
  },
  email: { pattern: "[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}", mask: "<EMAIL_ADDRESS>", hint: /@/ },
  caSin: { pattern: "\\b\\d{3}[ -]\\d{3}[ -]\\d{3}\\b", mask: "<CA_SIN>", hint: /\d{3}[ -]\d{3}[ -]\d/ },
};

const PATTERN = peerInput("file/pattern");
const BUDGET_PER_PIECE = 400_000;

export function compileTextGuard(
  action: TextGuard["action"],
  rules: readonly GuardRule[],
  rejection: TextGuard["rejection"],
): TextGuard {
  const compiled = rules.map(compileRule);
  return {
    name: rules.map(({ builtin, pattern }) => builtin ?? pattern).join(", "),
    action,
    rejection,
    *finding(text, from) {
      const matches: TextMatch[] = [];
      for (const { regex, mask, matchesAnything, mayMatch } of compiled) {
        if (!mayMatch(text)) continue;
        if (matchesAnything && action === "reject") return [{ start: from, end: text.length, mask, isCertain: true }];
        try {
          // A mask needs characters to replace, but a rejecting rule such as `^` or `\b` may match an empty string.
          const budget = { left: BUDGET_PER_PIECE };
          for (const { start, end } of yield* regex.finding(text, from, budget, action === "reject"))
            matches.push({ start, end, mask, isCertain: !regex.hasConditions });
        } catch {
          matches.push({ start: from, end: text.length, mask, isCertain: true });
        }
        yield;
      }
      return matches;
    },
  };
}

function compileRule(rule: GuardRule): CompiledRule {
  if (rule.builtin !== undefined) {
    const { pattern, mask, hint } = BUILTINS[rule.builtin];
    return { regex: compileRegex(PATTERN, pattern), mask, matchesAnything: false, mayMatch: (text) => hint.test(text) };
  }
  const regex = compileRegex(PATTERN, rule.pattern ?? "");
  // With a condition such as `^$`, the empty string matches only in some places.
  const matchesAnything = !regex.hasConditions && regex.test("", { left: BUDGET_PER_PIECE });
  return { regex, mask: "<masked>", matchesAnything, mayMatch: () => true };
}
