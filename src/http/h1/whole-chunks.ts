/**
 * The usual read of a stream: one chunk or several, whole and without extensions. Their bodies are taken out of the text of the
 * read, one character for each byte, which costs less than to go through the bytes. Anything else is the parser's to read.
 */
import { hexDigit } from "./hex-digit.ts";

const CR = 13;
const LF = 10;
/** Larger chunks than one read brings are not whole. */
const SIZE_DIGITS = 4;

/** The bodies, if the text is nothing else than such chunks, and none of them the last one. */
export function wholeChunks(text: string): string | undefined {
  let bodies = "";
  let at = 0;
  do {
    let size = 0;
    const mostDigits = at + SIZE_DIGITS;
    for (let digit = hexDigit(text.charCodeAt(at)); digit >= 0; digit = hexDigit(text.charCodeAt(at))) {
      if (at === mostDigits) return undefined;
      size = size * 16 + digit;
      at += 1;
    }
    const from = at + 2;
    const to = from + size;
    if (size === 0 || !isLineEnd(text, at) || !isLineEnd(text, to)) return undefined;
    const body = text.slice(from, to);
    bodies = bodies === "" ? body : bodies + body;
    at = to + 2;
  } while (at < text.length);
  return bodies;
}

function isLineEnd(text: string, at: number): boolean {
  return text.charCodeAt(at) === CR && text.charCodeAt(at + 1) === LF;
}
