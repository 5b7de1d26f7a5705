/**
 * Finds and replaces values in JSON strings without building a tree, which preserves large numbers, key order, and
 * unknown members. The input must be valid JSON.
 */

import type { Steps } from "../base/sliced-work.ts";
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  type Edit,
  keyAt,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  type Span,
  skipSpace,
  stringEnd,
  stringEndInSteps,
} from "./syntax.ts";

export interface Member extends Span {
  readonly key: string;
  /** Holds the offset of the key's opening quote. `start` and `end` are the offsets of the value. */
  readonly keyStart: number;
}

/**
 * Returns the offset after the value at `at`, or -1 if scanning stops at `until` before the end of the text. Strings
 * with few escapes are scanned to their end.
 */
export function valueEnd(text: string, at: number, until = text.length): number {
  const first = text.charCodeAt(at);
  if (first === QUOTE) return stringEnd(text, at, until);
  let depth = 0;
  let i = at;
  while (i < until) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = stringEnd(text, i, until);
      if (i < 0) return -1;
      continue;
    }
    if (code === OPEN_BRACE || code === OPEN_BRACKET) depth += 1;
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      if (depth === 0) break;
      depth -= 1;
      if (depth === 0) return i + 1;
    } else if (depth === 0 && (code === COMMA || code <= 32)) return i;
    i += 1;
  }
  return i >= until && until < text.length ? -1 : i;
}

export function members(text: string, at: number): Member[] {
  const found: Member[] = [];
  let i = skipSpace(text, at);
  if (text.charCodeAt(i) !== OPEN_BRACE) return found;
  i = skipSpace(text, i + 1);
  while (text.charCodeAt(i) === QUOTE) {
    const keyStart = i;
    const keyEnd = stringEnd(text, i);
    i = skipSpace(text, keyEnd);
    if (text.charCodeAt(i) !== COLON) break;
    const start = skipSpace(text, i + 1);
    const end = valueEnd(text, start);
    if (end === start) break;
    found.push({ key: keyAt(text, keyStart, keyEnd), keyStart, start, end });
    i = skipSpace(text, end);
    if (text.charCodeAt(i) !== COMMA) break;
    i = skipSpace(text, i + 1);
  }
  return found;
}

export function elements(text: string, at: number): Span[] {
  const found: Span[] = [];
  let i = skipSpace(text, at);
  if (text.charCodeAt(i) !== OPEN_BRACKET) return found;
  i = skipSpace(text, i + 1);
  while (i < text.length && text.charCodeAt(i) !== CLOSE_BRACKET) {
    const end = valueEnd(text, i);
    if (end === i) break;
    found.push({ start: i, end });
    i = skipSpace(text, end);
    if (text.charCodeAt(i) !== COMMA) break;
    i = skipSpace(text, i + 1);
  }
  return found;
}

export function member(text: string, at: number, key: string): Member | undefined {
  return members(text, at).find((one) => one.key === key);
}

export function find(text: string, at: number, ...path: readonly string[]): Span | undefined {
  let span: Span | undefined = { start: skipSpace(text, at), end: text.length };
  for (const key of path) {
    if (span === undefined) return undefined;
    span = member(text, span.start, key);
  }
  return span;
}

export function slice(text: string, span: Span): string {
  return text.slice(span.start, span.end);
}

/** Some line readers also split at these characters, for example Node's readline and Python's splitlines. */
const OTHER_BREAKS = /[\u0085\u2028\u2029]/g;

/**
 * Converts valid JSON to a single line for every reader. CR and LF occur only between tokens, where they become
 * spaces. The other line breaks occur only inside strings, where they are escaped.
 */
export function singleLine(text: string): string {
  const plain = text.includes("\n") || text.includes("\r") ? text.replace(/[\r\n]/g, " ") : text;
  if (!plain.includes("\u2028") && !plain.includes("\u2029") && !plain.includes("\u0085")) return plain;
  return plain.replace(OTHER_BREAKS, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Applies edits in any order. The edits must not overlap. */
export function splice(text: string, edits: readonly Edit[]): string {
  if (edits.length === 0) return text;
  const sorted = edits.length === 1 ? edits : [...edits].sort((a, b) => a.start - b.start);
  let result = "";
  let from = 0;
  for (const edit of sorted) {
    result += text.slice(from, edit.start) + edit.text;
    from = edit.end;
  }
  return result + text.slice(from);
}

/**
 * Inserts members at the front of the object at `at`, or replaces a value that is not an object. `added` is a list of
 * `"key":value` pairs joined by commas.
 */
export function insertMembers(text: string, at: number, added: string): Edit {
  const open = skipSpace(text, at);
  if (text.charCodeAt(open) !== OPEN_BRACE) return { start: open, end: valueEnd(text, open), text: `{${added}}` };
  const next = skipSpace(text, open + 1);
  const isEmpty = text.charCodeAt(next) === CLOSE_BRACE;
  return { start: open + 1, end: open + 1, text: isEmpty ? added : `${added},` };
}

export function removeMembers(text: string, at: number, isUnwanted: (key: string) => boolean): Edit[] {
  const all = members(text, at);
  const kept = all.filter((one) => !isUnwanted(one.key));
  if (kept.length === all.length) return [];
  const first = all[0];
  const last = all[all.length - 1];
  if (!first || !last) return [];
  const body = kept.map((one) => text.slice(one.keyStart, one.end)).join(",");
  return [{ start: first.keyStart, end: last.end, text: body }];
}

const STEP_CHARS = 64 * 1024;
const STEP_MEMBERS = 1_000;

export function* findInSteps(text: string, at: number, ...path: readonly string[]): Steps<Span | undefined> {
  let span: Span | undefined = { start: skipSpace(text, at), end: text.length };
  for (const key of path) {
    span = yield* memberInSteps(text, span.start, key);
    if (span === undefined) return undefined;
  }
  return span;
}

export function* elementsInSteps(text: string, at: number): Steps<Span[]> {
  const found: Span[] = [];
  let i = skipSpace(text, at);
  if (text.charCodeAt(i) !== OPEN_BRACKET) return found;
  i = skipSpace(text, i + 1);
  let pauseAt = i + STEP_CHARS;
  while (i < text.length && text.charCodeAt(i) !== CLOSE_BRACKET) {
    // A generator for each of many small elements would cost more than processing them.
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

export function* memberOf(text: string, object: Span, key: string): Steps<Span | undefined> {
  return object.end - object.start <= STEP_CHARS
    ? member(text, object.start, key)
    : yield* memberInSteps(text, object.start, key);
}

function* memberInSteps(text: string, at: number, wanted: string): Steps<Span | undefined> {
  return (yield* membersInSteps(text, at, { wanted })).find(({ key }) => key === wanted);
}

export interface KeyedSpan extends Span {
  readonly key: string;
}

export interface MemberReading {
  /** Reading stops after this member. */
  readonly wanted?: string;
  /** Reads a value and returns the offset after it, or returns undefined to skip the value. */
  readValue?(key: string, start: number): Steps<number | undefined>;
}

export function* membersInSteps(
  text: string,
  at: number,
  { wanted, readValue }: MemberReading = {},
): Steps<KeyedSpan[]> {
  const found: KeyedSpan[] = [];
  if (text.charCodeAt(at) !== OPEN_BRACE) return found;
  let i = skipSpace(text, at + 1);
  while (text.charCodeAt(i) === QUOTE) {
    const keyEnd = stringEnd(text, i);
    const key = keyAt(text, i, keyEnd);
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const near = (readValue && (yield* readValue(key, start))) ?? valueEnd(text, start, start + STEP_CHARS);
    const end = near < 0 ? yield* valueEndInSteps(text, start) : near;
    found.push({ key, start, end });
    if (key === wanted) break;
    i = skipSpace(text, end);
    if (text.charCodeAt(i) === COMMA) i = skipSpace(text, i + 1);
    if (found.length % STEP_MEMBERS === 0) yield;
  }
  return found;
}

/**
 * Calls `take` for each element of the array at `at`, in one pass over elements and members. `members` is empty if the
 * element is not an object, and is reused after the call. Returns the offset after the array.
 */
export function* eachObjectInSteps(
  text: string,
  at: number,
  take: (start: number, end: number, members: readonly KeyedSpan[]) => void,
): Steps<number> {
  const own: KeyedSpan[] = [];
  let i = skipSpace(text, at + 1);
  let pauseAt = i + STEP_CHARS;
  while (i < text.length && text.charCodeAt(i) !== CLOSE_BRACKET) {
    own.length = 0;
    const isObject = text.charCodeAt(i) === OPEN_BRACE;
    const near = isObject ? objectEnd(text, i, own, i + STEP_CHARS) : valueEnd(text, i, i + STEP_CHARS);
    const end = near < 0 ? yield* valueEndInSteps(text, i) : near;
    if (end === i) break;
    take(i, end, near < 0 ? yield* membersInSteps(text, i) : own);
    i = skipSpace(text, end);
    if (text.charCodeAt(i) !== COMMA) break;
    i = skipSpace(text, i + 1);
    if (i < pauseAt) continue;
    pauseAt = i + STEP_CHARS;
    yield;
  }
  return i + 1;
}

/** Adds the members to `into` and returns the offset after the object, or -1 if reading stops at `until`. */
function objectEnd(text: string, at: number, into: KeyedSpan[], until: number): number {
  let i = skipSpace(text, at + 1);
  while (text.charCodeAt(i) === QUOTE) {
    const keyEnd = stringEnd(text, i);
    const start = skipSpace(text, skipSpace(text, keyEnd) + 1);
    const end = valueEnd(text, start, until);
    if (end < 0 || end > until) return -1;
    into.push({ key: keyAt(text, i, keyEnd), start, end });
    i = skipSpace(text, end);
    if (text.charCodeAt(i) !== COMMA) break;
    i = skipSpace(text, i + 1);
  }
  return i + 1;
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
      // A generator for each of many short strings would cost more than scanning them.
      const near = stringEnd(text, i, i + STEP_CHARS);
      i = near < 0 ? yield* stringEndInSteps(text, i, STEP_CHARS) : near;
      if (depth === 0) return i;
      continue;
    }
    if (code === OPEN_BRACE || code === OPEN_BRACKET) depth += 1;
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      if (depth === 0) break;
      depth -= 1;
      if (depth === 0) return i + 1;
    } else if (depth === 0 && (code === COMMA || code <= 32)) break;
    i += 1;
  }
  return i;
}

/** Matches of the pattern must not be longer than `longest` characters. */
export function* occursInSteps(text: string, pattern: RegExp, longest: number): Steps<boolean> {
  for (let i = 0; i < text.length; i += STEP_CHARS) {
    if (pattern.test(text.slice(i, i + STEP_CHARS + longest))) return true;
    yield;
  }
  return false;
}

export function* lineBytesInSteps(text: string, into: Buffer[]): Steps<void> {
  for (let i = 0; i < text.length; ) {
    let end = Math.min(text.length, i + STEP_CHARS);
    // The slice must not split a surrogate pair.
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end += 1;
    into.push(Buffer.from(singleLine(text.slice(i, end))));
    i = end;
    yield;
  }
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}

/** Maps keys to JSON strings. An undefined value removes the member. */
export type MemberChanges = ReadonlyMap<string, string | undefined>;

/** Returns the object at `span` with the changes applied. A value that is not an object counts as an empty object. */
export function withMembers(text: string, span: Span | undefined, changes: MemberChanges): string {
  const parts: string[] = [];
  const left = new Map(changes);
  for (const one of span ? members(text, span.start) : []) {
    const key = text.slice(one.keyStart, one.start);
    if (!left.has(one.key)) parts.push(key + text.slice(one.start, one.end));
    else {
      const value = left.get(one.key);
      if (value !== undefined) parts.push(key + value);
    }
    left.delete(one.key);
  }
  for (const [key, value] of left) if (value !== undefined) parts.push(`${JSON.stringify(key)}:${value}`);
  return `{${parts.join(",")}}`;
}

/** Detects when a JSON object or array that arrives in chunks is complete, by counting its brackets. */
export class BracketBalance {
  #depth = 0;
  #inString = false;
  #isEscaped = false;
  #hasBegun = false;

  get isComplete(): boolean {
    return this.#hasBegun && this.#depth === 0;
  }

  push(text: string): void {
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (this.#isEscaped) this.#isEscaped = false;
      else if (this.#inString) {
        if (code === BACKSLASH) this.#isEscaped = true;
        else if (code === QUOTE) this.#inString = false;
      } else if (code === QUOTE) this.#inString = true;
      else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
        this.#depth += 1;
        this.#hasBegun = true;
      } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) this.#depth -= 1;
    }
  }
}
