/**
 * Where a JSON string ends. A native search finds the end of a long one at memory speed; short ones, and places full
 * of escaped quotes, are read byte by byte, because a search costs as much as some dozen bytes.
 */

const QUOTE = 34;
const BACKSLASH = 92;
const SHORT_STRING_BYTES = 32;
/** Quotes that are escaped come in pairs and threes. */
const NEIGHBOURHOOD_BYTES = 12;

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
    looks = NEIGHBOURHOOD_BYTES;
  }
}
