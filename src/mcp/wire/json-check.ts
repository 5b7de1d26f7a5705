/**
 * Whether a server's text is JSON that every reader reads alike: the grammar of RFC 8259, no repeated keys, bounded
 * nesting. One pass that builds nothing, because every answer passes here and most are only handed on. Text that
 * passes can be read by `JSON.parse` and by `json-text.ts` anywhere in it, with the same outcome.
 */
import { isAmong, keyOf, LargeObjects, type Member, skipSpace, trimmedEnd } from "./json-text.ts";

/** Deeper than any real message; far from where `JSON.stringify` and recursion over a value fail. */
export const MAX_SERVER_DEPTH = 256;

const QUOTE = 34;
const PLUS = 43;
const COMMA = 44;
const MINUS = 45;
const DOT = 46;
const ZERO = 48;
const NINE = 57;
const COLON = 58;
const OPEN_ARRAY = 91;
const BACKSLASH = 92;
const CLOSE_ARRAY = 93;
const LOWER_E = 101;
const LOWER_U = 117;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

/** Objects with more keys look them up in a set. */
const FEW_KEYS = 32;

/**
 * What is wrong with the text, to follow "its answer is not valid JSON: "; undefined if nothing is. `top` gets the
 * members of the object at the top, so that nobody walks through a large text again to find them.
 */
export function jsonProblem(text: string, maxDepth = MAX_SERVER_DEPTH, top?: Member[]): string | undefined {
  /** The keys of all open objects, outermost first. */
  const keys: string[] = [];
  /** For each open object the number of keys before it; -1 for an array. */
  const frames: number[] = [];
  let large: LargeObjects | undefined;
  let frame = -1;
  let i = skipSpace(text, 0);
  let key = "";
  let keyStart = 0;
  /** Of the member at the top whose value is being read; 0 for none. */
  let valueStart = 0;
  for (;;) {
    // A value begins at `i`.
    const code = text.charCodeAt(i);
    if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
      if (frames.length >= maxDepth) return `nested deeper than ${maxDepth} levels`;
      frame = code === OPEN_OBJECT ? keys.length : -1;
      frames.push(frame);
      i = skipSpace(text, i + 1);
      const isEmpty = text.charCodeAt(i) === (frame >= 0 ? CLOSE_OBJECT : CLOSE_ARRAY);
      if (!isEmpty && frame < 0) continue;
      if (!isEmpty) {
        const at = afterKey();
        if (typeof at === "string") return at;
        i = at;
        continue;
      }
    } else {
      const end = code === QUOTE ? checkedStringEnd(text, i) : scalarEnd(text, i, code);
      if (end < 0) return unexpected(text, i);
      i = skipSpace(text, end);
    }
    // A value has ended before `i`, or an empty list or object ends at it.
    for (;;) {
      if (frames.length === 0) return i < text.length ? unexpected(text, i) : undefined;
      if (valueStart > 0 && frames.length === 1) {
        top?.push({ key, keyStart, start: valueStart, end: trimmedEnd(text, valueStart, i) });
        valueStart = 0;
      }
      const next = text.charCodeAt(i);
      if (next === COMMA) break;
      if (next !== (frame >= 0 ? CLOSE_OBJECT : CLOSE_ARRAY)) return unexpected(text, i);
      if (frame >= 0) {
        keys.length = frame;
        large?.ended(frames.length);
      }
      frames.pop();
      frame = frames.length === 0 ? -1 : (frames[frames.length - 1] as number);
      i = skipSpace(text, i + 1);
    }
    i = skipSpace(text, i + 1);
    if (frame < 0) continue;
    const at = afterKey();
    if (typeof at === "string") return at;
    i = at;
  }

  /** Where the value of the key at `i` begins, or what is wrong with the key. */
  function afterKey(): number | string {
    const end = text.charCodeAt(i) === QUOTE ? checkedStringEnd(text, i) : -1;
    if (end < 0) return unexpected(text, i);
    const name = keyOf(text, i, end);
    large ??= keys.length - frame > FEW_KEYS ? new LargeObjects() : undefined;
    const isKnown =
      large && keys.length - frame > FEW_KEYS
        ? large.has(frames.length, keys, frame, name)
        : isAmong(keys, frame, name);
    if (isKnown) return `the key ${JSON.stringify(name.slice(0, 64))} is repeated`;
    keys.push(name);
    const colon = skipSpace(text, end);
    if (text.charCodeAt(colon) !== COLON) return unexpected(text, colon);
    const value = skipSpace(text, colon + 1);
    if (frames.length === 1) {
      key = name;
      keyStart = i;
      valueStart = value;
    }
    return value;
  }
}

/** After the string that opens at `open`; -1 if it is none. */
function checkedStringEnd(text: string, open: number): number {
  let plain = 0;
  for (let i = open + 1; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code !== QUOTE && code !== BACKSLASH && code >= 32) {
      plain += 1;
      if (plain < LONG_RUN) continue;
      plain = 0;
      SPECIAL.lastIndex = i;
      if (!SPECIAL.test(text)) return -1;
      // Just before it: the loop goes on with it.
      i = SPECIAL.lastIndex - 2;
      continue;
    }
    if (code === QUOTE) return i + 1;
    if (code < 32) return -1;
    i += 1;
    const escaped = text.charCodeAt(i);
    if (escaped === LOWER_U) {
      for (let digit = 1; digit <= 4; digit++) if (!isHexDigit(text.charCodeAt(i + digit))) return -1;
      i += 4;
    } else if (!ESCAPES.has(escaped)) return -1;
  }
  return -1;
}

/** After so many plain characters the engine's own search is faster than our loop: four times for a megabyte. */
const LONG_RUN = 32;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not stand in a string
const SPECIAL = /["\\\u0000-\u001f]/g;

/** `"`, `\`, `/`, b, f, n, r, t. */
const ESCAPES: ReadonlySet<number> = new Set([...'"\\/bfnrt'].map((one) => one.charCodeAt(0)));

function isHexDigit(code: number): boolean {
  return (code >= ZERO && code <= NINE) || (code >= 65 && code <= 70) || (code >= 97 && code <= 102);
}

/** After the number or literal that begins at `at`; -1 if it is none. */
function scalarEnd(text: string, at: number, first: number): number {
  if (first === MINUS || isDigit(first)) return numberEnd(text, at);
  for (const literal of ["true", "false", "null"]) if (text.startsWith(literal, at)) return at + literal.length;
  return -1;
}

function numberEnd(text: string, at: number): number {
  let i = text.charCodeAt(at) === MINUS ? at + 1 : at;
  const whole = digitsEnd(text, i);
  // No digit, or a zero in front of others.
  if (whole === i || (text.charCodeAt(i) === ZERO && whole > i + 1)) return -1;
  i = whole;
  if (text.charCodeAt(i) === DOT) {
    const fraction = digitsEnd(text, i + 1);
    if (fraction === i + 1) return -1;
    i = fraction;
  }
  if ((text.charCodeAt(i) | 32) !== LOWER_E) return i;
  const sign = text.charCodeAt(i + 1);
  const from = sign === PLUS || sign === MINUS ? i + 2 : i + 1;
  const exponent = digitsEnd(text, from);
  return exponent === from ? -1 : exponent;
}

function digitsEnd(text: string, at: number): number {
  let i = at;
  while (isDigit(text.charCodeAt(i))) i += 1;
  return i;
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

function unexpected(text: string, at: number): string {
  return at >= text.length ? "it ends early" : `unexpected text at character ${at + 1}`;
}
