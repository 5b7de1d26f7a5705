/**
 * Checks the length, nesting, brackets, and quotes of a CEL source before the library parses it, because the
 * library's parser recurses per bracket and reports unbalanced brackets imprecisely.
 */
import { peerInput } from "../../base/peer-inputs.ts";
import { ExpressionError } from "./expression-error.ts";

export const MAX_SOURCE_BYTES = peerInput("file/expression").maxBytes;
export const MAX_NESTING = peerInput("file/expression").maxDepth;

const CLOSING: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

export function scanSource(source: string): void {
  if (Buffer.byteLength(source) > MAX_SOURCE_BYTES) {
    throw new ExpressionError(source, 0, `the expression is longer than ${MAX_SOURCE_BYTES} bytes`);
  }
  if (source.trim() === "") throw new ExpressionError(source, 0, "the expression is empty");

  const open: { bracket: string; offset: number }[] = [];
  let prefixRun = 0;
  let offset = 0;
  while (offset < source.length) {
    const char = source.charAt(offset);
    if (char === '"' || char === "'") {
      offset = endOfString(source, offset);
      prefixRun = 0;
      continue;
    }
    if (char === "/" && source[offset + 1] === "/") {
      const lineEnd = source.indexOf("\n", offset);
      offset = lineEnd < 0 ? source.length : lineEnd;
      continue;
    }
    if (char === "=" && source[offset + 1] !== "=" && !"=!<>".includes(source[offset - 1] ?? " "))
      throw new ExpressionError(source, offset, 'a single "=" is not an operator: use "==" to compare');
    if (CLOSING[char] !== undefined) {
      open.push({ bracket: char, offset });
    } else if (char === ")" || char === "]" || char === "}") {
      const opened = open.pop();
      if (opened === undefined) throw new ExpressionError(source, offset, `"${char}" closes nothing`);
      if (CLOSING[opened.bracket] !== char) {
        throw new ExpressionError(source, offset, `"${opened.bracket}" is closed by "${char}"`);
      }
    }
    // Prefix `!` and `-` nest like brackets.
    if (char === "!" || char === "-") prefixRun++;
    else if (char.trim() !== "") prefixRun = 0;
    if (open.length > MAX_NESTING || prefixRun > MAX_NESTING) {
      throw new ExpressionError(source, offset, `the expression nests deeper than ${MAX_NESTING} levels`);
    }
    offset++;
  }
  const unclosed = open.pop();
  if (unclosed !== undefined) {
    throw new ExpressionError(source, unclosed.offset, `"${unclosed.bracket}" is never closed`);
  }
}

/**
 * Returns the offset after the string literal whose opening quote is at `start`. Raw literals (`r"\"`) have no escapes.
 */
function endOfString(source: string, start: number): number {
  const quote = source.charAt(start);
  const triple = source.startsWith(quote.repeat(3), start);
  const delimiter = triple ? quote.repeat(3) : quote;
  const prefix = /(?<![A-Za-z0-9_])[bBrR]{1,2}$/.exec(source.slice(Math.max(0, start - 3), start))?.[0] ?? "";
  const isRaw = prefix.toLowerCase().includes("r");

  for (let offset = start + delimiter.length; offset < source.length; offset++) {
    if (source[offset] === "\\" && !isRaw) offset++;
    else if (source.startsWith(delimiter, offset)) return offset + delimiter.length;
    else if (source[offset] === "\n" && !triple) break;
  }
  throw new ExpressionError(source, start, "the string is never closed");
}
