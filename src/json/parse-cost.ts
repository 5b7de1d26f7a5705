/**
 * Estimates how long `JSON.parse` takes by counting tokens, without parsing. Commas and opening brackets count as one
 * token, and a colon counts as two, because a name costs more than a value.
 */
import type { Steps } from "../base/sliced-work.ts";
import { COLON, COMMA, endOfString, OPEN_BRACE, OPEN_BRACKET, QUOTE, stringEnd } from "./syntax.ts";

const STEP_BYTES = 32 * 1024;

export function exceedsTokens(text: string, max: number): boolean {
  // A colon is one character and two tokens, so shorter text cannot exceed the limit.
  if (text.length <= max / 2) return false;
  let tokens = 0;
  for (let i = 0; i < text.length && tokens <= max; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) i = stringEnd(text, i) - 1;
    else tokens += tokenWeight(code);
  }
  return tokens > max;
}

export function* exceedsTokensInSteps(bytes: Buffer, max: number): Steps<boolean> {
  // In valid JSON, a colon follows two quotes, so there are at most as many tokens as bytes.
  if (bytes.length <= max) return false;
  let tokens = 0;
  let i = 0;
  while (i < bytes.length && tokens <= max) {
    for (const stop = Math.min(i + STEP_BYTES, bytes.length); i < stop; i++) {
      const code = bytes[i] as number;
      if (code === QUOTE) i = endOfString(bytes, i + 1);
      else tokens += tokenWeight(code);
    }
    yield;
  }
  return tokens > max;
}

function tokenWeight(code: number): number {
  if (code === COLON) return 2;
  return code === COMMA || code === OPEN_BRACE || code === OPEN_BRACKET ? 1 : 0;
}
