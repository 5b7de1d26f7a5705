/**
 * The lexical rules that every JSON scanner in this package shares: character codes, white space, where a string ends,
 * and how a key is decoded. The same codes serve bytes (`Buffer`) and text (`string`).
 */

export const SPACE = 32;
export const QUOTE = 34;
export const COMMA = 44;
export const COLON = 58;
export const OPEN_BRACKET = 91;
export const BACKSLASH = 92;
export const CLOSE_BRACKET = 93;
export const OPEN_BRACE = 123;
export const CLOSE_BRACE = 125;

/** The place of a value, without surrounding white space: byte offsets in a `Buffer`, character offsets in a string. */
export interface Span {
  readonly start: number;
  /** The offset after the last byte or character. */
  readonly end: number;
}

/** Replaces the content of the span with `text`. */
export interface Edit extends Span {
  readonly text: string;
}

/** White space by RFC 8259 section 2. */
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

/** Skips white space before `end`, from the end backwards. */
export function trimmedEnd(text: string, start: number, end: number): number {
  let at = end;
  while (at > start && text.charCodeAt(at - 1) <= 32) at -= 1;
  return at;
}

const SHORT_STRING_BYTES = 32;
/** The number of bytes after an escaped quote to scan one at a time, because escaped quotes tend to cluster. */
const NEIGHBORHOOD_BYTES = 12;

/** The offset of the closing quote (or the end of the bytes) of the string whose first character is at `start`. */
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

/** After the closing quote of the string that opens at `open`. */
export function stringEnd(text: string, open: number): number {
  let at = text.indexOf('"', open + 1);
  for (let escaped = 0; at >= 0; escaped++) {
    let slashes = 0;
    for (let i = at - 1; i > open && text.charCodeAt(i) === BACKSLASH; i--) slashes += 1;
    if (slashes % 2 === 0) return at + 1;
    if (escaped === FEW_ESCAPED) return escapedStringEnd(text, at + 1);
    at = text.indexOf('"', at + 1);
  }
  return text.length;
}

/**
 * Native search is faster over plain text, but a million searches for a million escaped quotes take four times as long.
 */
const FEW_ESCAPED = 8;

function escapedStringEnd(text: string, from: number): number {
  for (let i = from; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === BACKSLASH) i += 1;
    else if (code === QUOTE) return i + 1;
  }
  return text.length;
}

/** The key whose opening quote is at `start`; `end` is the offset after the closing quote. */
export function keyAt(text: string, start: number, end: number): string {
  return decodeKey(text.slice(start + 1, end - 1));
}

/**
 * Decodes the escapes of a key (`"m\u006fdel"`). A JSON parser reads the plain word, so the gateway must as well.
 * Invalid escapes are left in place.
 */
export function decodeKey(raw: string): string {
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
