/**
 * How much there is to parse in a JSON text, without parsing it: a megabyte that is one string costs a millisecond or
 * two, a megabyte of small objects a hundred. What holds everybody else up is the number of values, not of bytes.
 */

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_BRACKET = 91;
const BACKSLASH = 92;
const OPEN_BRACE = 123;
/** A native search costs as much as some dozen characters: short strings are read one by one. */
const SHORT_STRING_CHARS = 32;

/** Whether it has more commas, opening brackets and, twice, colons: a name costs more than a value. */
export function hasMoreTokens(text: string, max: number): boolean {
  // A token is at least a character: most texts are too short to have as many.
  if (text.length <= max / 2) return false;
  let tokens = 0;
  for (let i = 0; i < text.length && tokens <= max; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) i = endOfText(text, i + 1);
    else if (code === COLON) tokens += 2;
    else if (code === COMMA || code === OPEN_BRACE || code === OPEN_BRACKET) tokens += 1;
  }
  return tokens > max;
}

/** The closing quote of the string whose first character is at `start`, or the end. */
function endOfText(text: string, start: number): number {
  let i = start;
  for (;;) {
    const stop = Math.min(text.length, i + SHORT_STRING_CHARS);
    while (i < stop) {
      const code = text.charCodeAt(i);
      if (code === QUOTE) return i;
      i += code === BACKSLASH ? 2 : 1;
    }
    if (i >= text.length) return text.length;
    const quote = text.indexOf('"', i);
    if (quote < 0) return text.length;
    let backslashes = 0;
    while (quote - 1 - backslashes >= i && text.charCodeAt(quote - 1 - backslashes) === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return quote;
    i = quote + 1;
  }
}
