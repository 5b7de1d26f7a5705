/**
 * Reads JSON that a peer sent. Every function takes the entry of the input in the list of peer inputs and enforces its
 * limits before parsing. Only this file, `parse-in-steps.ts`, and `syntax.ts` call `JSON.parse`.
 */

import { InputError, type PeerInput } from "../base/peer-inputs.ts";
import { isMembers, type Members } from "./json.ts";
import { countWithin, exceededLimit, MAX_NUMBER_CHARS } from "./parse-cost.ts";
import { BACKSLASH, OPEN_BRACE, QUOTE, SPACE } from "./syntax.ts";
import { type Inspection, inspectDocument } from "./validate-json.ts";

const SHORT_CHARS = 64;

/** The parts of a token are JSON. */
export type JsonInput = PeerInput<"JSON"> | PeerInput<"JWT">;

/** Throws an `InputError`, whose message is a predicate, such as `is not JSON`. */
export function readJson(input: JsonInput, source: string | Uint8Array): unknown {
  return parsed(input, boundedText(input, source));
}

/** Returns undefined if the input is undefined, is not JSON, or exceeds a limit. */
export function tryReadJson(input: JsonInput, source: string | Uint8Array | undefined): unknown {
  if (source === undefined) return undefined;
  try {
    const text = boundedText(input, source);
    return plainString(text) ?? JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns undefined if the input is not a JSON object, or exceeds a limit. */
export function readMembers(input: JsonInput, source: string | Uint8Array): Members | undefined {
  // Rejects other strings, such as the `[DONE]` of a stream, without the cost of an exception.
  if (!beginsObject(source)) return undefined;
  const value = tryReadJson(input, source);
  return isMembers(value) ? value : undefined;
}

/** Counts the values, names, and characters of several texts. */
export interface ParsedTexts {
  parsedItems?: number;
  parsedChars?: number;
}

/** They are parsed without a pause. */
const MAX_COUNTED_CHARS = 2 * 1024 * 1024;

/** Like `readJson`. The entry limits the items of all texts that `counted` counts, with those that are not JSON. */
export function readCounted(input: JsonInput, text: string, counted: ParsedTexts): unknown {
  const chars = (counted.parsedChars ?? 0) + text.length;
  if (chars > Math.min(input.maxBytes, MAX_COUNTED_CHARS)) throw InputError.tooLarge(input);
  counted.parsedChars = chars;
  const before = counted.parsedItems ?? 0;
  const items = countWithin(text, input.maxItems - before, input.maxDepth);
  if (typeof items !== "number") throw beyondLimit(input, items);
  counted.parsedItems = before + items;
  return parsed(input, text);
}

export interface InspectedJson extends Inspection {
  readonly value: unknown;
}

/**
 * Also returns the position of each top-level member. Throws an `InputError` for repeated keys and for limits before it
 * parses the text.
 */
export function readInspected(input: PeerInput<"JSON">, text: string): InspectedJson {
  if (text.length > input.maxBytes) throw InputError.tooLarge(input);
  const { top, problem } = inspectDocument(input, text);
  if (problem !== undefined) throw new InputError(input, "form", problem);
  return { top, problem, value: parsed(input, text) };
}

function parsed(input: JsonInput, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new InputError(input, "form", "is not JSON", { cause });
  }
}

function boundedText(input: JsonInput, source: string | Uint8Array): string {
  if (source.length > input.maxBytes) throw InputError.tooLarge(input);
  const text = typeof source === "string" ? source : utf8Text(source);
  const exceeded = exceededLimit(text, input.maxItems, input.maxDepth);
  if (exceeded !== undefined) throw beyondLimit(input, exceeded);
  return text;
}

function beyondLimit(input: JsonInput, exceeded: "items" | "depth" | "number"): InputError {
  if (exceeded === "items") return InputError.tooManyItems(input);
  if (exceeded === "depth") return new InputError(input, "depth", `is nested deeper than ${input.maxDepth} levels`);
  return new InputError(input, "form", `has a number of more than ${MAX_NUMBER_CHARS} digits`);
}

function utf8Text(bytes: Uint8Array): string {
  const buffer = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return buffer.toString("utf8");
}

/** A short string without escapes is its own value. Calling the parser for it takes ten times as long. */
function plainString(text: string): string | undefined {
  const end = text.length - 1;
  if (end < 1 || end > SHORT_CHARS || text.charCodeAt(0) !== QUOTE || text.charCodeAt(end) !== QUOTE) return undefined;
  for (let i = 1; i < end; i++) {
    const code = text.charCodeAt(i);
    if (code < SPACE || code === QUOTE || code === BACKSLASH) return undefined;
  }
  return text.slice(1, end);
}

function beginsObject(source: string | Uint8Array): boolean {
  let at = 0;
  if (typeof source === "string") {
    while (source.charCodeAt(at) <= SPACE) at += 1;
    return source.charCodeAt(at) === OPEN_BRACE;
  }
  while ((source[at] as number) <= SPACE) at += 1;
  return source[at] === OPEN_BRACE;
}
