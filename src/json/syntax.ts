/**
 * Defines the lexical rules that the JSON scanners in this folder share: character codes, white space, the end of a
 * string, and the decoding of keys.
 */

import type { Steps } from "../base/sliced-work.ts";

export const SPACE = 32;
export const QUOTE = 34;
export const COMMA = 44;
export const COLON = 58;
export const OPEN_BRACKET = 91;
export const BACKSLASH = 92;
export const CLOSE_BRACKET = 93;
export const OPEN_BRACE = 123;
export const CLOSE_BRACE = 125;

/**
 * Locates a value without surrounding white space, by byte offsets in a `Buffer` or character offsets in a
 * string.
 */
export interface Span {
  readonly start: number;
  readonly end: number;
}

export interface Edit extends Span {
  readonly text: string;
}

/** Writes out the members, because V8 in Node 20 takes several times as long to add a member after `...span`. */
export function editAt({ start, end }: Span, text: string): Edit {
  return { start, end, text };
}

/** RFC 8259 section 2 defines these as white space. */
export function isSpace(code: number | undefined): boolean {
  return code === SPACE || code === 10 || code === 13 || code === 9;
}

export function skipSpace(text: string, at: number): number {
  let i = at;
  for (; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code !== 32 && code !== 10 && code !== 13 && code !== 9) break;
  }
  return i;
}

export function trimmedEnd(text: string, start: number, end: number): number {
  let at = end;
  while (at > start && text.charCodeAt(at - 1) <= 32) at -= 1;
  return at;
}

const SHORT_STRING_BYTES = 32;
/** Escaped quotes tend to cluster, so this many bytes after one are scanned one at a time. */
const NEIGHBORHOOD_BYTES = 12;

/**
 * Returns the offset of the closing quote, or the end of the bytes. `start` is the offset of the string's first
 * character.
 */
export function endOfString(bytes: Buffer, start: number): number {
  let i = start;
  let looks = SHORT_STRING_BYTES;
  for (;;) {
    const stop = Math.min(bytes.length, i + looks);
    while (i < stop) {
      const byte = bytes[i];
      if (byte === QUOTE) return i;
      i += byte === BACKSLASH ? 2 : 1;
    }
    if (i >= bytes.length) return bytes.length;
    const quote = bytes.indexOf(QUOTE, i);
    if (quote < 0) return bytes.length;
    let backslashes = 0;
    while (quote - 1 - backslashes >= i && bytes[quote - 1 - backslashes] === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return quote;
    i = quote + 1;
    looks = NEIGHBORHOOD_BYTES;
  }
}

/**
 * Returns the offset after the closing quote of the string that opens at `open`, or the length of the text. Returns -1
 * if the string has many escapes and continues beyond `until`.
 */
export function stringEnd(text: string, open: number, until = text.length): number {
  let at = text.indexOf('"', open + 1);
  for (let escaped = 0; at >= 0; escaped++) {
    let slashes = 0;
    for (let i = at - 1; slashes < MANY_SLASHES && i > open && text.charCodeAt(i) === BACKSLASH; i--) slashes += 1;
    if (slashes === MANY_SLASHES) return escapedStringEnd(text, open + 1, until);
    if (slashes % 2 === 0) return at + 1;
    if (escaped === FEW_ESCAPED) return escapedStringEnd(text, at + 1, until);
    at = text.indexOf('"', at + 1);
  }
  return text.length;
}

/** After this many escaped quotes, a loop over the characters is faster than repeated native searches. */
const FEW_ESCAPED = 8;
const MANY_SLASHES = 64;

function escapedStringEnd(text: string, from: number, until: number): number {
  const end = Math.min(until, text.length);
  for (let i = from; i < end; i++) {
    const code = text.charCodeAt(i);
    if (code === BACKSLASH) i += 1;
    else if (code === QUOTE) return i + 1;
  }
  return until < text.length ? -1 : text.length;
}

/** Returns the same as `stringEnd` for a string with many escapes. */
export function* stringEndInSteps(text: string, open: number, stepChars: number): Steps<number> {
  let i = open + 1;
  for (let pauseAt = i + stepChars; i < text.length; pauseAt = i + stepChars) {
    for (; i < text.length && i < pauseAt; i++) {
      const code = text.charCodeAt(i);
      if (code === BACKSLASH) i += 1;
      else if (code === QUOTE) return i + 1;
    }
    yield;
  }
  return text.length;
}

/** `start` is the offset of the opening quote, and `end` is the offset after the closing quote. */
export function keyAt(text: string, start: number, end: number): string {
  return decodeString(text.slice(start + 1, end - 1));
}

/**
 * Decodes the escapes of a string without its quotes, for example the key `m\u006fdel`. A string with an invalid escape
 * is returned unchanged.
 */
export function decodeString(raw: string): string {
  if (!raw.includes("\\")) return raw;
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    return raw;
  }
}

export function foldCase(key: string): string {
  return key.toUpperCase().toLowerCase();
}
