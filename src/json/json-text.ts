/**
 * JSON as text: finds the places of values and replaces them without building the tree and writing it anew.
 * That is what keeps foreign messages faithful (numbers above 2^53, key order, unknown members) and cheap: a
 * result of ten megabytes is skipped, not parsed. Only `inspectDocument` expects hostile text; the other
 * functions expect JSON that was checked (`text-check.ts`) and end, without sense but without harm, on anything else.
 */

import { ManyNames } from "./many-names.ts";

export interface Span {
  readonly start: number;
  /** After the last character. */
  readonly end: number;
}

export interface Member extends Span {
  readonly key: string;
  /** Of the key's opening quote; `start` and `end` are those of the value. */
  readonly keyStart: number;
}

export interface Edit extends Span {
  readonly text: string;
}

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const OPEN_ARRAY = 91;
const BACKSLASH = 92;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;

export function skipSpace(text: string, at: number): number {
  let i = at;
  for (; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code !== 32 && code !== 10 && code !== 13 && code !== 9) break;
  }
  return i;
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

/** The engine's search is faster over plain text; with a million escaped quotes, a million searches take four times as long. */
const FEW_ESCAPED = 8;

function escapedStringEnd(text: string, from: number): number {
  for (let i = from; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === BACKSLASH) i += 1;
    else if (code === QUOTE) return i + 1;
  }
  return text.length;
}

/** After the value that begins at `at`; -1 if it was not found before `until`. */
export function valueEnd(text: string, at: number, until = text.length): number {
  const first = text.charCodeAt(at);
  if (first === QUOTE) return stringEnd(text, at);
  let depth = 0;
  let i = at;
  while (i < until) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = stringEnd(text, i);
      continue;
    }
    if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth += 1;
    else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
      if (depth === 0) break;
      depth -= 1;
      if (depth === 0) return i + 1;
    } else if (depth === 0 && (code === COMMA || code <= 32)) return i;
    i += 1;
  }
  return i >= until && until < text.length ? -1 : i;
}

/** The members of the object that begins at `at`; none if there is no object. */
export function members(text: string, at: number): Member[] {
  const found: Member[] = [];
  let i = skipSpace(text, at);
  if (text.charCodeAt(i) !== OPEN_OBJECT) return found;
  i = skipSpace(text, i + 1);
  while (text.charCodeAt(i) === QUOTE) {
    const keyStart = i;
    const keyEnd = stringEnd(text, i);
    i = skipSpace(text, keyEnd);
    if (text.charCodeAt(i) !== COLON) break;
    const start = skipSpace(text, i + 1);
    const end = valueEnd(text, start);
    if (end === start) break;
    found.push({ key: keyOf(text, keyStart, keyEnd), keyStart, start, end });
    i = skipSpace(text, end);
    if (text.charCodeAt(i) !== COMMA) break;
    i = skipSpace(text, i + 1);
  }
  return found;
}

/** The elements of the array that begins at `at`; none if there is no array. */
export function elements(text: string, at: number): Span[] {
  const found: Span[] = [];
  let i = skipSpace(text, at);
  if (text.charCodeAt(i) !== OPEN_ARRAY) return found;
  i = skipSpace(text, i + 1);
  while (i < text.length && text.charCodeAt(i) !== CLOSE_ARRAY) {
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

/** The value below `at` along these keys. */
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

/** Beside CR and LF, what some readers of lines take for an end: Node's readline, Python's splitlines. */
const OTHER_BREAKS = /[\u0085\u2028\u2029]/g;

/**
 * JSON text as one line for every reader. CR and LF can only stand between tokens, where they are mere space; the other
 * line breaks can only stand inside strings, where they are escaped.
 */
export function singleLine(text: string): string {
  const plain = text.includes("\n") || text.includes("\r") ? text.replace(/[\r\n]/g, " ") : text;
  if (!plain.includes("\u2028") && !plain.includes("\u2029") && !plain.includes("\u0085")) return plain;
  return plain.replace(OTHER_BREAKS, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Applies edits that do not overlap, in any order. */
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
 * Puts members at the front of the object that begins at `at`; another value is replaced by an object of them.
 * `added` is `"key":value` pairs joined by commas.
 */
export function insertMembers(text: string, at: number, added: string): Edit {
  const open = skipSpace(text, at);
  if (text.charCodeAt(open) !== OPEN_OBJECT) return { start: open, end: valueEnd(text, open), text: `{${added}}` };
  const next = skipSpace(text, open + 1);
  const isEmpty = text.charCodeAt(next) === CLOSE_OBJECT;
  return { start: open + 1, end: open + 1, text: isEmpty ? added : `${added},` };
}

/** Takes members out of the object that begins at `at`, with one comma each. */
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

export interface Inspection {
  /** Of the object at the top; empty if there is none. */
  readonly top: readonly Member[];
  readonly problem: string | undefined;
}

/** Commas, opening brackets and, twice, names. Each takes up to 0.5 µs to parse: these hold the loop for 30 ms, and what records them as long again. */
const MAX_TOKENS = 60_000;

/**
 * One pass over text that may be anything: refuses nesting that would make the parser slow or the serialiser
 * throw, more values than may be parsed at once, and repeated keys, which two parsers may read differently. What it finds holds only if the text then
 * also parses. The keys of all open objects stand in one list, so that nothing is allocated per object.
 */
export function inspectDocument(text: string, maxDepth: number): Inspection {
  const top: Member[] = [];
  const keys: string[] = [];
  /** For each open object the number of keys before it; -1 for an array. */
  const frames: number[] = [];
  const large = new LargeObjects();
  let frame = -1;
  let tokens = 0;
  let wantsKey = false;
  let key = "";
  let keyStart = 0;
  let valueStart = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      const end = stringEnd(text, i);
      if (wantsKey) {
        wantsKey = false;
        tokens += 2;
        const name = keyOf(text, i, end);
        const isKnown =
          keys.length - frame > FEW_KEYS ? large.has(frames.length, keys, frame, name) : isAmong(keys, frame, name);
        if (isKnown) return { top, problem: `the key ${JSON.stringify(name.slice(0, 64))} is repeated` };
        keys.push(name);
        if (frames.length === 1) {
          key = name;
          keyStart = i;
        }
      }
      i = end - 1;
    } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
      tokens += 1;
      if (frames.length >= maxDepth) return { top, problem: `nested deeper than ${maxDepth} levels` };
      wantsKey = code === OPEN_OBJECT;
      frame = wantsKey ? keys.length : -1;
      frames.push(frame);
    } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY || code === COMMA) {
      if (frames.length === 1 && valueStart > 0) {
        top.push({ key, keyStart, start: valueStart, end: trimmedEnd(text, valueStart, i) });
        valueStart = 0;
      }
      if (code === COMMA) tokens += 1;
      if (tokens > MAX_TOKENS) return { top, problem: `it has more than ${MAX_TOKENS} values and names` };
      if (code !== COMMA) {
        if (frame >= 0) {
          while (keys.length > frame) keys.pop();
          large.ended(frames.length);
        }
        frames.pop();
        frame = frames.length === 0 ? -1 : (frames[frames.length - 1] as number);
      }
      wantsKey = code === COMMA && frame >= 0;
    } else if (code === COLON && frames.length === 1 && frame >= 0 && valueStart === 0) {
      valueStart = skipSpace(text, i + 1);
    }
  }
  return { top, problem: undefined };
}

/** Looking through so many is cheaper than building a set. */
const FEW_KEYS = 32;

export function isAmong(keys: readonly string[], from: number, name: string): boolean {
  for (let i = from; i < keys.length; i++) if (keys[i] === name) return true;
  return false;
}

/** Sets for the few objects that have many keys, by depth. */
export class LargeObjects {
  #sets: Map<number, { readonly keys: ManyNames; taken: number }> | undefined = undefined;

  has(depth: number, keys: readonly string[], from: number, name: string): boolean {
    this.#sets ??= new Map();
    let set = this.#sets.get(depth);
    if (set === undefined) {
      set = { keys: new ManyNames(), taken: from };
      this.#sets.set(depth, set);
    }
    for (; set.taken < keys.length; set.taken++) set.keys.add(keys[set.taken] as string);
    return set.keys.has(name);
  }

  /** The object at this depth has ended: the next one there has keys of its own. */
  ended(depth: number): void {
    this.#sets?.delete(depth);
  }
}

export function trimmedEnd(text: string, start: number, end: number): number {
  let at = end;
  while (at > start && text.charCodeAt(at - 1) <= 32) at -= 1;
  return at;
}

export function keyOf(text: string, start: number, end: number): string {
  const raw = text.slice(start + 1, end - 1);
  if (!raw.includes("\\")) return raw;
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    return raw;
  }
}
