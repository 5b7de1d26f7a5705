/**
 * What `json-text.ts` and `Buffer.from` do, for texts that are so large that they would hold up everybody else: in steps,
 * and with the same outcome. The text was checked (`json-check.ts`).
 */
import type { Steps } from "../../lib/process/turns.ts";
import { keyOf, type Span, skipSpace, stringEnd } from "./json-text.ts";

const QUOTE = 34;
const COMMA = 44;
const OPEN_ARRAY = 91;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

/** Walked through, searched or encoded in one step: up to 1 ms. */
const STEP_CHARS = 64 * 1024;

/** The value below `at` along these keys. */
export function* findInSteps(text: string, at: number, ...path: readonly string[]): Steps<Span | undefined> {
  let span: Span | undefined = { start: skipSpace(text, at), end: text.length };
  for (const key of path) {
    span = yield* memberInSteps(text, span.start, key);
    if (span === undefined) return undefined;
  }
  return span;
}

function* memberInSteps(text: string, at: number, wanted: string): Steps<Span | undefined> {
  if (text.charCodeAt(at) !== OPEN_OBJECT) return undefined;
  let i = skipSpace(text, at + 1);
  while (text.charCodeAt(i) === QUOTE) {
    const keyEnd = stringEnd(text, i);
    const key = keyOf(text, i, keyEnd);
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const end = yield* valueEndInSteps(text, start);
    if (key === wanted) return { start, end };
    i = skipSpace(text, end);
    if (text.charCodeAt(i) === COMMA) i = skipSpace(text, i + 1);
  }
  return undefined;
}

function* valueEndInSteps(text: string, at: number): Steps<number> {
  let depth = 0;
  let i = at;
  let pauseAt = at + STEP_CHARS;
  while (i < text.length) {
    if (i >= pauseAt) {
      pauseAt = i + STEP_CHARS;
      yield;
    }
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = stringEnd(text, i);
      if (depth === 0) return i;
      continue;
    }
    if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth += 1;
    else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
      if (depth === 0) break;
      depth -= 1;
      if (depth === 0) return i + 1;
    } else if (depth === 0 && (code === COMMA || code <= 32)) break;
    i += 1;
  }
  return i;
}

/** Whether the pattern, whose matches are no longer than `longest`, occurs. */
export function* occursInSteps(text: string, pattern: RegExp, longest: number): Steps<boolean> {
  for (let i = 0; i < text.length; i += STEP_CHARS) {
    if (pattern.test(text.slice(i, i + STEP_CHARS + longest))) return true;
    yield;
  }
  return false;
}

/** The bytes of a text as one line: line breaks between tokens are mere space. */
export function* lineBytesInSteps(text: string, into: Buffer[]): Steps<void> {
  for (let i = 0; i < text.length; ) {
    let end = Math.min(text.length, i + STEP_CHARS);
    // The two halves of a character stay together.
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end += 1;
    const piece = text.slice(i, end);
    into.push(Buffer.from(/[\r\n]/.test(piece) ? piece.replace(/[\r\n]/g, " ") : piece));
    i = end;
    yield;
  }
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}
