/**
 * Checks that JSON has no repeated keys and is not nested too deeply, without building a tree. `jsonProblem` also
 * checks the RFC 8259 grammar.
 */

import { randomInt } from "node:crypto";
import type { PeerInput } from "../base/peer-inputs.ts";
import { finish, type Steps } from "../base/sliced-work.ts";
import type { Member } from "./json-text.ts";
import { MAX_NUMBER_CHARS } from "./parse-cost.ts";
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  keyAt,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  SPACE,
  skipSpace,
  stringEnd,
  trimmedEnd,
} from "./syntax.ts";

const PLUS = 43;
const MINUS = 45;
const DOT = 46;
const ZERO = 48;
const NINE = 57;
const LOWER_E = 101;
const LOWER_U = 117;

const STEP_CHARS = 8 * 1024;
/** Long strings are read faster, so their steps are larger. */
const STRING_STEP_CHARS = 64 * 1024;
/** Longer names and numbers are rejected, because a step cannot end within them. */
const MAX_ATOM_CHARS = 64 * 1024;

export function jsonProblem(input: PeerInput<"JSON">, text: string, top?: Member[]): string | undefined {
  return finish(jsonProblemInSteps(input, text, top));
}

/**
 * Returns the problem of an invalid string, or undefined if the string is valid. `top` receives the members of the
 * top-level object. Open elements are the names of an object and its ancestors.
 */
export function* jsonProblemInSteps(input: PeerInput<"JSON">, text: string, top?: Member[]): Steps<string | undefined> {
  const { maxBytes, maxDepth, maxOpen } = input;
  if (text.length > maxBytes) return `it is larger than ${maxBytes} bytes`;
  /** Holds the keys of all open objects, outermost first. */
  const keys: string[] = [];
  /** Holds the number of keys before each open object, or -1 for an array. */
  const frames: number[] = [];
  let large: LargeObjectKeys | undefined;
  let frame = -1;
  let i = skipSpace(text, 0);
  let key = "";
  let keyStart = 0;
  /** Holds the start of the current top-level member's value, or 0 if there is none. */
  let valueStart = 0;
  let pauseAt = STEP_CHARS;
  for (;;) {
    if (i >= pauseAt) {
      pauseAt = i + STEP_CHARS;
      yield;
    }
    const code = text.charCodeAt(i);
    if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      if (frames.length >= maxDepth) return `nested deeper than ${maxDepth} levels`;
      frame = code === OPEN_BRACE ? keys.length : -1;
      frames.push(frame);
      i = skipSpace(text, i + 1);
      const isEmpty = text.charCodeAt(i) === (frame >= 0 ? CLOSE_BRACE : CLOSE_BRACKET);
      if (!isEmpty && frame < 0) continue;
      if (!isEmpty) {
        const at = afterKey();
        if (typeof at === "string") return at;
        i = at;
        continue;
      }
    } else {
      let end = code === QUOTE ? checkedStringEnd(text, i + 1) : scalarEnd(text, i, code);
      while (end < NO_STRING) {
        yield;
        end = checkedStringEnd(text, NO_STRING - end);
      }
      if (end < 0) return unexpected(text, i);
      if (code !== QUOTE && end - i > MAX_ATOM_CHARS) return TOO_LONG;
      i = skipSpace(text, end);
    }
    // A value has ended before `i`, or an empty array or object ends at `i`.
    for (;;) {
      if (frames.length === 0) return i < text.length ? unexpected(text, i) : undefined;
      if (valueStart > 0 && frames.length === 1) {
        top?.push({ key, keyStart, start: valueStart, end: trimmedEnd(text, valueStart, i) });
        valueStart = 0;
      }
      const next = text.charCodeAt(i);
      if (next === COMMA) break;
      if (next !== (frame >= 0 ? CLOSE_BRACE : CLOSE_BRACKET)) return unexpected(text, i);
      if (frame >= 0) {
        while (keys.length > frame) keys.pop();
        large?.ended(frames.length);
      }
      frames.pop();
      frame = frames.length === 0 ? -1 : (frames[frames.length - 1] as number);
      i = skipSpace(text, i + 1);
    }
    i = skipSpace(text, i + 1);
    if (frame < 0) continue;
    const at = afterKey();
    if (typeof at === "string") return at;
    i = at;
  }

  function afterKey(): number | string {
    const end = text.charCodeAt(i) === QUOTE ? checkedStringEnd(text, i + 1) : NO_STRING;
    if (end < NO_STRING) return TOO_LONG;
    if (end < 0) return unexpected(text, i);
    const name = keyAt(text, i, end);
    large ??= keys.length - frame > FEW_KEYS ? new LargeObjectKeys() : undefined;
    const isKnown =
      large && keys.length - frame > FEW_KEYS
        ? large.has(frames.length, keys, frame, name)
        : isAmong(keys, frame, name);
    if (isKnown) return `the key ${JSON.stringify(name.slice(0, 64))} is repeated`;
    if (keys.push(name) > maxOpen) return `it has more than ${maxOpen} names in one object`;
    const colon = skipSpace(text, end);
    if (text.charCodeAt(colon) !== COLON) return unexpected(text, colon);
    const value = skipSpace(text, colon + 1);
    if (frames.length === 1) {
      key = name;
      keyStart = i;
      valueStart = value;
    }
    return value;
  }
}

/**
 * Returns the offset after the string whose characters begin at `from`, or NO_STRING if it is invalid. For a string
 * that continues beyond the step, returns NO_STRING minus the offset at which to continue.
 */
function checkedStringEnd(text: string, from: number): number {
  const pauseAt = from + STRING_STEP_CHARS;
  let plain = 0;
  for (let i = from; i < text.length; i++) {
    if (i >= pauseAt) return NO_STRING - i;
    const code = text.charCodeAt(i);
    if (code !== QUOTE && code !== BACKSLASH && code >= 32) {
      plain += 1;
      if (plain < LONG_RUN) continue;
      plain = 0;
      const found = text.slice(i, pauseAt).search(SPECIAL);
      // The loop increments `i`, so it must point before the match.
      i = (found < 0 ? Math.min(pauseAt, text.length) : i + found) - 1;
      continue;
    }
    if (code === QUOTE) return i + 1;
    if (code < 32) return NO_STRING;
    i += 1;
    const escaped = text.charCodeAt(i);
    if (escaped === LOWER_U) {
      for (let digit = 1; digit <= 4; digit++) if (!isHexDigit(text.charCodeAt(i + digit))) return NO_STRING;
      i += 4;
    } else if (!ESCAPES.has(escaped)) return NO_STRING;
  }
  return NO_STRING;
}

const NO_STRING = -1;
const TOO_LONG = `it has a name or a number of more than ${MAX_ATOM_CHARS} characters`;
/** After this many plain characters, a native search is faster than the loop. */
const LONG_RUN = 32;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these must not occur in a string
const SPECIAL = /["\\\u0000-\u001f]/;

const ESCAPES: ReadonlySet<number> = new Set([...'"\\/bfnrt'].map((one) => one.charCodeAt(0)));

function isHexDigit(code: number): boolean {
  return (code >= ZERO && code <= NINE) || (code >= 65 && code <= 70) || (code >= 97 && code <= 102);
}

/** Returns the offset after the number or literal that begins at `at`, or -1 if it is invalid. */
function scalarEnd(text: string, at: number, first: number): number {
  if (first === MINUS || isDigit(first)) return numberEnd(text, at);
  for (const literal of ["true", "false", "null"]) if (text.startsWith(literal, at)) return at + literal.length;
  return -1;
}

function numberEnd(text: string, at: number): number {
  let i = text.charCodeAt(at) === MINUS ? at + 1 : at;
  const whole = digitsEnd(text, i);
  if (whole === i || (text.charCodeAt(i) === ZERO && whole > i + 1)) return -1;
  i = whole;
  if (text.charCodeAt(i) === DOT) {
    const fraction = digitsEnd(text, i + 1);
    if (fraction === i + 1) return -1;
    i = fraction;
  }
  if ((text.charCodeAt(i) | 32) !== LOWER_E) return i;
  const sign = text.charCodeAt(i + 1);
  const from = sign === PLUS || sign === MINUS ? i + 2 : i + 1;
  const exponent = digitsEnd(text, from);
  return exponent === from ? -1 : exponent;
}

function digitsEnd(text: string, at: number): number {
  let i = at;
  // One digit beyond the limit is enough to reject the number.
  const last = at + MAX_ATOM_CHARS;
  while (i <= last && isDigit(text.charCodeAt(i))) i += 1;
  return i;
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

function unexpected(text: string, at: number): string {
  return at >= text.length ? "it ends early" : `unexpected text at character ${at + 1}`;
}

export interface Inspection {
  /** The list is empty if the top-level value is not an object, and incomplete if there is a problem. */
  readonly top: readonly Member[];
  readonly problem: string | undefined;
}

/**
 * Reports nesting that is too deep, too many values, too long numbers, and repeated keys. The findings are valid only if
 * the text also parses.
 */
export function inspectDocument({ maxDepth, maxItems }: PeerInput<"JSON">, text: string): Inspection {
  const top: Member[] = [];
  const keys: string[] = [];
  /** Holds the number of keys before each open object, or -1 for an array. */
  const frames: number[] = [];
  const large = new LargeObjectKeys();
  let frame = -1;
  let tokens = 0;
  let wantsKey = false;
  let key = "";
  let keyStart = 0;
  let valueStart = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code <= SPACE) continue;
    if (code === QUOTE) {
      const end = stringEnd(text, i);
      if (wantsKey) {
        wantsKey = false;
        tokens += 2;
        const name = keyAt(text, i, end);
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
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      tokens += 1;
      if (frames.length >= maxDepth) return { top, problem: `nested deeper than ${maxDepth} levels` };
      wantsKey = code === OPEN_BRACE;
      frame = wantsKey ? keys.length : -1;
      frames.push(frame);
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET || code === COMMA) {
      if (frames.length === 1 && valueStart > 0) {
        top.push({ key, keyStart, start: valueStart, end: trimmedEnd(text, valueStart, i) });
        valueStart = 0;
      }
      if (code === COMMA) tokens += 1;
      if (tokens > maxItems) return { top, problem: `it has more than ${maxItems} values and names` };
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
    } else if (isDigit(code)) {
      const end = digitsEnd(text, i);
      if (end - i > MAX_NUMBER_CHARS)
        return { top, problem: `it has a number of more than ${MAX_NUMBER_CHARS} digits` };
      i = end - 1;
    }
  }
  return { top, problem: undefined };
}

/** A linear search through this many keys is cheaper than building a set. */
const FEW_KEYS = 32;

export function isAmong(keys: readonly string[], from: number, name: string): boolean {
  for (let i = from; i < keys.length; i++) if (keys[i] === name) return true;
  return false;
}

export class LargeObjectKeys {
  #sets: Map<number, { readonly keys: NameSet; taken: number }> | undefined = undefined;

  has(depth: number, keys: readonly string[], from: number, name: string): boolean {
    this.#sets ??= new Map();
    let set = this.#sets.get(depth);
    if (set === undefined) {
      set = { keys: new NameSet(), taken: from };
      this.#sets.set(depth, set);
    }
    for (; set.taken < keys.length; set.taken++) set.keys.add(keys[set.taken] as string);
    return set.keys.has(name);
  }

  /** Must be called when the object at this depth ends, so that the next object starts with an empty set. */
  ended(depth: number): void {
    this.#sets?.delete(depth);
  }
}

const SHARDS = 256;
/** Objects with fewer names need only one set. */
const FEW = 4_096;
const SEED = randomInt(2 ** 31);

/**
 * Shards prevent the growth of a single table from blocking the event loop, and the seed makes collisions
 * unpredictable.
 */
export class NameSet {
  readonly #few = new Set<string>();
  #shards: Set<string>[] | undefined = undefined;

  add(name: string): void {
    if (this.#few.size < FEW) this.#few.add(name);
    else {
      this.#shards ??= Array.from({ length: SHARDS }, () => new Set<string>());
      this.#shards[shardOf(name)]?.add(name);
    }
  }

  has(name: string): boolean {
    return this.#few.has(name) || this.#shards?.[shardOf(name)]?.has(name) === true;
  }
}

function shardOf(name: string): number {
  let hash = SEED;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return (hash ^ (hash >>> 15)) & (SHARDS - 1);
}
