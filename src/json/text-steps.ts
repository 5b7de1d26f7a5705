/**
 * What `json-text.ts` and `Buffer.from` do, for texts that are so large that they would hold up everybody else: in steps,
 * and with the same outcome. The text was checked (`text-check.ts`).
 */
import type { Steps } from "../base/turns.ts";
import { keyOf, member, type Span, singleLine, skipSpace, stringEnd, valueEnd } from "./json-text.ts";

const QUOTE = 34;
const COMMA = 44;
const OPEN_ARRAY = 91;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

/** Walked through, searched or encoded in one step: up to 1 ms. */
const STEP_CHARS = 64 * 1024;
const STEP_MEMBERS = 1_000;

/** The value below `at` along these keys. */
export function* findInSteps(text: string, at: number, ...path: readonly string[]): Steps<Span | undefined> {
  let span: Span | undefined = { start: skipSpace(text, at), end: text.length };
  for (const key of path) {
    span = yield* memberInSteps(text, span.start, key);
    if (span === undefined) return undefined;
  }
  return span;
}

/** The elements of the array that begins at `at`; none if there is no array. */
export function* elementsInSteps(text: string, at: number): Steps<Span[]> {
  const found: Span[] = [];
  let i = skipSpace(text, at);
  if (text.charCodeAt(i) !== OPEN_ARRAY) return found;
  i = skipSpace(text, i + 1);
  let pauseAt = i + STEP_CHARS;
  while (i < text.length && text.charCodeAt(i) !== CLOSE_ARRAY) {
    // A generator for each of many small elements would cost more than they do.
    const near = valueEnd(text, i, i + STEP_CHARS);
    const end = near < 0 ? yield* valueEndInSteps(text, i) : near;
    if (end === i) break;
    found.push({ start: i, end });
    i = skipSpace(text, end);
    if (text.charCodeAt(i) !== COMMA) break;
    i = skipSpace(text, i + 1);
    if (i < pauseAt) continue;
    pauseAt = i + STEP_CHARS;
    yield;
  }
  return found;
}

/** The member of an object whose place is known. */
export function* memberOf(text: string, object: Span, key: string): Steps<Span | undefined> {
  return object.end - object.start <= STEP_CHARS
    ? member(text, object.start, key)
    : yield* memberInSteps(text, object.start, key);
}

function* memberInSteps(text: string, at: number, wanted: string): Steps<Span | undefined> {
  return (yield* membersInSteps(text, at, wanted)).find(({ key }) => key === wanted);
}

/** The members of the object that begins at `at`, as far as the one that is wanted. */
export function* membersInSteps(text: string, at: number, wanted?: string): Steps<(Span & { readonly key: string })[]> {
  const found: (Span & { readonly key: string })[] = [];
  if (text.charCodeAt(at) !== OPEN_OBJECT) return found;
  let i = skipSpace(text, at + 1);
  while (text.charCodeAt(i) === QUOTE) {
    const keyEnd = stringEnd(text, i);
    const key = keyOf(text, i, keyEnd);
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const near = valueEnd(text, start, start + STEP_CHARS);
    const end = near < 0 ? yield* valueEndInSteps(text, start) : near;
    found.push({ key, start, end });
    if (key === wanted) break;
    i = skipSpace(text, end);
    if (text.charCodeAt(i) === COMMA) i = skipSpace(text, i + 1);
    // Many small ones are some steps as well.
    if (found.length % STEP_MEMBERS === 0) yield;
  }
  return found;
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

/** The bytes of a text as one line: see `singleLine`. */
export function* lineBytesInSteps(text: string, into: Buffer[]): Steps<void> {
  for (let i = 0; i < text.length; ) {
    let end = Math.min(text.length, i + STEP_CHARS);
    // The two halves of a character stay together.
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end += 1;
    into.push(Buffer.from(singleLine(text.slice(i, end))));
    i = end;
    yield;
  }
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}
