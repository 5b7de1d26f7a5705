/**
 * Looks for patterns in prompts and answers, in time linear in their length: the patterns are RE2 (no look-around,
 * no back references), run with a budget. A text that would cost more than its budget counts as a match: a guard
 * that could not look must not let through.
 */
import type { Budget } from "../../cel/functions/budget.ts";
import { compileRegex, type Regex } from "../../cel/functions/regex.ts";
import { finish, type Steps } from "../../lib/process/turns.ts";
import type { TextGuard } from "../dialects/llm-call.ts";

export type BuiltinPattern = "ssn" | "creditCard" | "phoneNumber" | "email" | "caSin";

export interface GuardRule {
  readonly builtin?: BuiltinPattern | undefined;
  readonly pattern?: string | undefined;
}

interface CompiledRule {
  readonly regex: Regex;
  readonly mask: string;
  /** A native test that is false for most texts that cannot match. */
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

/** One unit is about 0.1 µs: a piece of text costs at most 40 ms per pattern. Between matches the loop can go on. */
const BUDGET_PER_PIECE = 400_000;
/** Longer texts are looked at in pieces, cut where a line or a word ends. */
const PIECE_CHARACTERS = 16 * 1024;
const CUT_CHARACTERS = 2 * 1024;

/** Throws an Error that says what is wrong with a pattern. */
export function compileTextGuard(
  action: TextGuard["action"],
  rules: readonly GuardRule[],
  rejection: TextGuard["rejection"],
): TextGuard {
  const compiled = rules.map(compileRule);
  function* each(
    text: string,
    look: (piece: string, rule: CompiledRule, budget: Budget) => Steps<string | undefined>,
  ): Steps<string | undefined> {
    let result = "";
    for (const piece of piecesOf(text)) {
      let seen = piece;
      for (const rule of compiled) {
        if (!rule.mayMatch(seen)) continue;
        const changed = yield* look(seen, rule, { left: BUDGET_PER_PIECE });
        if (changed === undefined) return undefined;
        seen = changed;
        yield;
      }
      result += seen;
    }
    return result;
  }
  function* matching(text: string): Steps<boolean> {
    // biome-ignore lint/correctness/useYield: a test is one step
    const seen = yield* each(text, function* (piece, { regex }, budget) {
      try {
        return regex.test(piece, budget) ? undefined : piece;
      } catch {
        return undefined;
      }
    });
    return seen === undefined;
  }
  function* masking(text: string): Steps<string> {
    const masked = yield* each(text, function* (piece, { regex, mask }, budget) {
      try {
        return yield* regex.replacing(piece, mask, budget);
      } catch {
        return mask;
      }
    });
    return masked ?? "";
  }
  return {
    name: rules.map(({ builtin, pattern }) => builtin ?? pattern).join(", "),
    action,
    rejection,
    matching,
    masking,
    matches: (text) => finish(matching(text)),
    mask: (text) => finish(masking(text)),
  };
}

function compileRule(rule: GuardRule): CompiledRule {
  if (rule.builtin !== undefined) {
    const { pattern, mask, hint } = BUILTINS[rule.builtin];
    return { regex: compileRegex(pattern), mask, mayMatch: (text) => hint.test(text) };
  }
  return { regex: compileRegex(rule.pattern ?? ""), mask: "<masked>", mayMatch: () => true };
}

function piecesOf(text: string): string[] {
  if (text.length <= PIECE_CHARACTERS) return [text];
  const pieces: string[] = [];
  let from = 0;
  while (text.length - from > PIECE_CHARACTERS) {
    const latest = from + PIECE_CHARACTERS;
    // Only so much of it is searched: a text without a line break must not be read again for each piece.
    const earliest = latest - CUT_CHARACTERS;
    const end = text.slice(earliest, latest + 1);
    const line = end.lastIndexOf("\n");
    const place = line >= 0 ? line : end.lastIndexOf(" ");
    const cut = place >= 0 ? earliest + place + 1 : latest;
    pieces.push(text.slice(from, cut));
    from = cut;
  }
  pieces.push(text.slice(from));
  return pieces;
}
