/**
 * Estimates how long the JSON parser takes by counting tokens, without parsing. Commas and opening brackets count as one
 * token, and a colon counts as two, because a name costs more than a value.
 */
import type { PeerInput } from "../base/peer-inputs.ts";
import type { Steps } from "../base/sliced-work.ts";
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  endOfString,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  SPACE,
  stringEnd,
} from "./syntax.ts";

const DIGIT_ZERO = 48;
const DIGIT_NINE = 57;
const STEP_BYTES = 32 * 1024;

export function exceedsItems({ maxItems }: PeerInput, text: string): boolean {
  return exceededLimit(text, maxItems, Number.POSITIVE_INFINITY) === "items";
}

/** The parser takes many times as long for each digit of a number as for other text. */
export const MAX_NUMBER_CHARS = 10_000;

type ExceededLimit = "items" | "depth" | "number";

export function exceededLimit(text: string, maxItems: number, maxDepth: number): ExceededLimit | undefined {
  // A colon is one character and two tokens, and each level has a bracket, so shorter text cannot exceed a limit.
  if (text.length <= maxItems / 2 && text.length <= maxDepth) return undefined;
  const counted = countWithin(text, maxItems, maxDepth);
  return typeof counted === "number" ? undefined : counted;
}

/**
 * Counts tokens and levels in one pass. Returns the tokens, or the limit that the text exceeds. The result is valid only
 * if the text also parses.
 */
export function countWithin(text: string, maxItems: number, maxDepth: number): number | ExceededLimit {
  let tokens = 0;
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code <= SPACE) continue;
    if (code === QUOTE) {
      i = stringEnd(text, i) - 1;
      continue;
    }
    if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      depth += 1;
      if (depth > maxDepth) return "depth";
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth -= 1;
    else if (isDigit(code)) {
      const longest = i + MAX_NUMBER_CHARS;
      while (isDigit(text.charCodeAt(i + 1))) {
        i += 1;
        if (i === longest) return "number";
      }
      continue;
    }
    tokens += tokenWeight(code);
    if (tokens > maxItems) return "items";
  }
  return tokens;
}

export function* exceededLimitInSteps(
  { maxItems, maxDepth }: PeerInput,
  bytes: Buffer,
): Steps<ExceededLimit | undefined> {
  // In valid JSON, a colon follows two quotes, so there are at most as many tokens as bytes.
  if (bytes.length <= maxItems && bytes.length <= maxDepth) return undefined;
  let tokens = 0;
  let depth = 0;
  let digits = 0;
  let i = 0;
  while (i < bytes.length) {
    for (const stop = Math.min(i + STEP_BYTES, bytes.length); i < stop; i++) {
      const code = bytes[i] as number;
      if (code <= SPACE) continue;
      if (code === QUOTE) {
        i = endOfString(bytes, i + 1);
        continue;
      }
      if (code === OPEN_BRACE || code === OPEN_BRACKET) {
        depth += 1;
        if (depth > maxDepth) return "depth";
      } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth -= 1;
      else if (isDigit(code)) {
        digits += 1;
        if (digits > MAX_NUMBER_CHARS) return "number";
        continue;
      }
      digits = 0;
      tokens += tokenWeight(code);
    }
    if (tokens > maxItems) return "items";
    yield;
  }
  return undefined;
}

function isDigit(code: number): boolean {
  return code >= DIGIT_ZERO && code <= DIGIT_NINE;
}

function tokenWeight(code: number): number {
  if (code === COLON) return 2;
  return code === COMMA || code === OPEN_BRACE || code === OPEN_BRACKET ? 1 : 0;
}
