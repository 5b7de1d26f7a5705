/**
 * Parses and serializes large JSON in steps that call `JSON.parse` or `JSON.stringify` on parts of it.
 */

import { InputError, type PeerInput } from "../base/peer-inputs.ts";
import type { Steps } from "../base/sliced-work.ts";
import { isMembers, type Members, putMember } from "./json.ts";
import { exceededLimitInSteps } from "./parse-cost.ts";
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COMMA,
  endOfString,
  isSpace,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from "./syntax.ts";

const GROUP_BYTES = 16 * 1024;
const GROUP_VALUES = 2_000;
/** A string counts as one additional value per this many characters. */
const CHARACTERS_PER_VALUE = 64;
/** Long strings are decoded and encoded in parts of this size. */
const TEXT_STEP = 256 * 1024;
const LOWER_U = 117;
/** Deeper values are parsed in one step, because each level scans everything below it. */
const SPLIT_DEPTH = 32;

/**
 * Returns undefined if the input is not a JSON object, is nested too deep, or has a too long number. Throws an `InputError` if it exceeds another
 * limit.
 */
export function* readMembersInSteps(input: PeerInput<"JSON">, bytes: Buffer): Steps<Members | undefined> {
  if (bytes.length > input.maxBytes) throw InputError.tooLarge(input);
  const exceeded = yield* exceededLimitInSteps(input, bytes);
  if (exceeded === "items") throw InputError.tooManyItems(input);
  // The JSON parser takes much longer for each level of deep lists, and for each digit of a number.
  if (exceeded !== undefined) return undefined;
  try {
    const value = yield* parse(bytes, 0, bytes.length, 0);
    return isMembers(value) ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

export function* stringifyInSteps(value: unknown): Steps<string> {
  const parts: string[] = [];
  yield* write(value, parts);
  return parts.join("");
}

/** Decodes the JSON of a string, without its quotes. Throws a SyntaxError if it is not valid. */
export function* textInSteps(bytes: Buffer): Steps<string> {
  let text = "";
  for (let start = 0; start < bytes.length; ) {
    const end = bytes.length - start > TEXT_STEP ? endOfPart(bytes, start) : bytes.length;
    text += JSON.parse(`"${bytes.toString("utf8", start, end)}"`);
    start = end;
    yield;
  }
  return text;
}

/** Does not divide an escape or a character. */
function endOfPart(bytes: Buffer, start: number): number {
  let end = start;
  while (end - start < TEXT_STEP) end += bytes[end] !== BACKSLASH ? 1 : bytes[end + 1] === LOWER_U ? 6 : 2;
  while (end < bytes.length && ((bytes[end] as number) & 0xc0) === 0x80) end += 1;
  return Math.min(end, bytes.length);
}

/** Returns the JSON of a string, without its quotes. */
export function* textJsonInSteps(text: string): Steps<string> {
  let json = "";
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + TEXT_STEP, text.length);
    // A surrogate pair stays together, because a single surrogate is escaped.
    if (end < text.length && (text.charCodeAt(end - 1) & 0xfc00) === 0xd800) end += 1;
    json += JSON.stringify(text.slice(start, end)).slice(1, -1);
    start = end;
    yield;
  }
  return json;
}

function* parse(bytes: Buffer, from: number, to: number, depth: number): Steps<unknown> {
  let start = from;
  let end = to;
  while (start < end && isSpace(bytes[start])) start += 1;
  while (end > start && isSpace(bytes[end - 1])) end -= 1;
  const isList = bytes[start] === OPEN_BRACKET;
  if (end - start <= GROUP_BYTES || depth >= SPLIT_DEPTH || (!isList && bytes[start] !== OPEN_BRACE))
    return JSON.parse(bytes.toString("utf8", start, end));
  if (bytes[end - 1] !== (isList ? CLOSE_BRACKET : CLOSE_BRACE)) throw new SyntaxError();
  const whole = isList ? new ListParts() : new ObjectParts();
  const last = end - 1;
  /** `group` is the start of the items that were not parsed yet, and `item` is the start of the current item. */
  let group = start + 1;
  let item = group;
  let open = 0;
  let child = 0;
  let pausedAt = group;
  for (let i = group; i < last; i++) {
    const byte = bytes[i];
    if (byte === QUOTE) i = endOfString(bytes, i + 1);
    else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      if (open === 0) child = i;
      open += 1;
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      open -= 1;
      if (open < 0) throw new SyntaxError();
      if (open === 0 && i - child >= GROUP_BYTES) {
        if (item > group) whole.add(bytes.toString("utf8", group, item - 1));
        const name = bytes.toString("utf8", item, child);
        whole.addOne(name, yield* parse(bytes, child, i + 1, depth + 1));
        // Only white space may precede the comma or the closing bracket.
        i += 1;
        while (i < last && isSpace(bytes[i])) i += 1;
        if (i < last && bytes[i] !== COMMA) throw new SyntaxError();
        group = i + 1;
        item = group;
        pausedAt = i;
      }
    } else if (byte === COMMA && open === 0) {
      item = i + 1;
      if (i - group >= GROUP_BYTES) {
        whole.add(bytes.toString("utf8", group, i));
        group = item;
      }
    }
    if (i - pausedAt >= GROUP_BYTES) {
      pausedAt = i;
      yield;
    }
  }
  if (open !== 0) throw new SyntaxError();
  if (group === start + 1) return JSON.parse(bytes.toString("utf8", start, end));
  // `add` rejects empty text, because an item must follow a comma. After a large last item, `group` is past `last`.
  if (group <= last) whole.add(bytes.toString("utf8", group, last));
  return whole.value;
}

class ListParts {
  readonly value: unknown[] = [];

  add(text: string): void {
    const items = JSON.parse(`[${text}]`) as unknown[];
    // The text is empty if no item follows a comma.
    if (items.length === 0) throw new SyntaxError();
    for (const item of items) this.value.push(item);
  }

  addOne(before: string, item: unknown): void {
    if (!/^[ \t\r\n]*$/.test(before)) throw new SyntaxError();
    this.value.push(item);
  }
}

class ObjectParts {
  readonly value: Record<string, unknown> = {};

  add(text: string): void {
    const entries = Object.entries(JSON.parse(`{${text}}`) as Members);
    if (entries.length === 0) throw new SyntaxError();
    for (const [name, member] of entries) putMember(this.value, name, member);
  }

  addOne(before: string, member: unknown): void {
    const [name, ...others] = Object.keys(JSON.parse(`{${before}[]}`) as Members);
    if (name === undefined || others.length > 0) throw new SyntaxError();
    putMember(this.value, name, member);
  }
}

function* write(value: unknown, parts: string[]): Steps<void> {
  if (weightOf(value, GROUP_VALUES) < GROUP_VALUES || typeof value !== "object" || value === null) {
    parts.push(JSON.stringify(value) ?? "null");
    return;
  }
  const isList = Array.isArray(value);
  parts.push(isList ? "[" : "{");
  let list: unknown[] = [];
  let object: Record<string, unknown> = {};
  let weight = 0;
  let isFirst = true;
  const comma = (): void => {
    if (!isFirst) parts.push(",");
    isFirst = false;
  };
  const flush = (): void => {
    if (weight === 0) return;
    const text = JSON.stringify(isList ? list : object);
    // `JSON.stringify` omits undefined members, so the group may be empty.
    if (text.length > 2) {
      comma();
      parts.push(text.slice(1, -1));
    }
    list = [];
    object = {};
    weight = 0;
  };
  for (const [name, item] of Object.entries(value)) {
    const itsWeight = weightOf(item, GROUP_VALUES);
    if (itsWeight >= GROUP_VALUES && typeof item === "object") {
      flush();
      comma();
      if (!isList) parts.push(`${JSON.stringify(name)}:`);
      yield* write(item, parts);
    } else {
      if (isList) list.push(item);
      else putMember(object, name, item);
      weight += itsWeight;
      if (weight >= GROUP_VALUES) {
        flush();
        yield;
      }
    }
  }
  flush();
  parts.push(isList ? "]" : "}");
}

function weightOf(value: unknown, limit: number): number {
  if (typeof value === "string") return 1 + Math.floor(value.length / CHARACTERS_PER_VALUE);
  if (typeof value !== "object" || value === null) return 1;
  let weight = 1;
  const items: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
  for (const item of items) {
    weight += weightOf(item, limit - weight);
    if (weight >= limit) break;
  }
  return weight;
}
