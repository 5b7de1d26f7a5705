/**
 * Patterns of the configuration: where RE2 and JavaScript mean the same by a pattern, they match the same, and no pattern
 * takes more than a moment, not even on a text that is made for it.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { linearRegex } from "../../../src/base/regex.ts";
import { defineTarget, expect, expectSame } from "../target.ts";

const PATTERN = peerInput("file/pattern");

type Input = { readonly pattern: string; readonly text: string };

const MAX_CPU_MS = 1_000;
/** Outside of these both libraries have words of their own. */
const COMMON = /^(?:[ab/.]|\[\^?[ab]+\]|\((?:\?:)?|\)|[|]|[*+?](?![*+?])|\{[0-3]\}(?![*+?{])|\\[dws.])*$/;

function compiled<Value>(make: () => Value): Value | undefined {
  try {
    return make();
  } catch {
    return undefined;
  }
}

export const regularExpressions = defineTarget<Input>({
  name: "regular-expressions",
  seeds: [
    { pattern: "/a(b|ab)*", text: "/ababab" },
    { pattern: "(a*)*b", text: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" },
  ],
  smokeCases: 3_000,
  generate: (random) => ({
    pattern: random.text(
      [
        "a",
        "b",
        "/",
        ".",
        "*",
        "+",
        "?",
        "(",
        "(?:",
        ")",
        "|",
        "[ab]",
        "[^a]",
        "{2}",
        "\\d",
        "\\w",
        "\\.",
        "^",
        "$",
        "(?i)",
        "\\pL",
        "(?=a)",
        "\\1",
        "é",
        "{1000}",
        "[[:alpha:]]",
      ],
      8,
    ),
    text: random.text(["a", "b", "/", ".", "1", "é", "\n", "ab", "aaaaaaaa"], 12),
  }),
  run({ pattern, text }) {
    const began = process.cpuUsage();
    const ours = compiled(() => linearRegex(PATTERN, `^(?:${pattern})$`));
    const result = ours?.test(text.slice(0, 5_000));
    const { user } = process.cpuUsage(began);
    expect(user < MAX_CPU_MS * 1000, `it took ${user / 1000} ms`);
    if (ours === undefined) return "refused";
    if (!COMMON.test(pattern) || text.includes("\n") || /[^\x20-\x7e]/.test(text)) return `its own words ${result}`;
    // JavaScript goes back and forth: only what is short is safe to ask.
    const theirs =
      text.length > 24 || /[*+}].*[*+}].*[*+}]/.test(pattern)
        ? undefined
        : compiled(() => new RegExp(`^(?:${pattern})$`));
    if (theirs === undefined) return `alone ${result}`;
    expectSame(result, theirs.test(text), `whether ${pattern} matches`);
    return `${result} ${pattern.replace(/[ab/]/g, "c").slice(0, 6)}`;
  },
});
