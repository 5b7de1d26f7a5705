/**
 * Where a JSON string ends. A native search finds the end of a long one at memory speed; short ones, and texts full
 * of escaped quotes, are read byte by byte, because a search costs as much as some hundred bytes.
 */

const QUOTE = 34;
const BACKSLASH = 92;
const SHORT_STRING_BYTES = 96;

/** The offset of the closing quote (or the end of the bytes) of the string whose first character is at `start`. */
export function endOfString(bytes: Buffer, start: number): number {
  let i = start;
  for (;;) {
    const stop = Math.min(bytes.length, i + SHORT_STRING_BYTES);
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
  }
}
