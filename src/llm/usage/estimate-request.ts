/**
 * The estimated input of an LLM request, in whichever dialect it is written: all text below the members that carry
 * the prompt, a constant per message, the definitions of tools, and a flat price per image or file.
 * One pass over the bytes, no tree, no strings; encoded images are skipped, not read.
 */

import { finish, type Steps } from "../../base/turns.ts";
import { endOfString } from "../../json/json-string.ts";
import { estimateJsonTextTokens, SAMPLED_BYTES } from "./estimate.ts";
import { CONTENT, DEFINITIONS, flagsOfKey, HOLDER, MEDIA, PROMPT, ROLE, SILENT } from "./prompt-keys.ts";

/** Providers put a few marks around every message. */
const MESSAGE_TOKENS = 4;
/** An image of ordinary size: providers charge 85 to 1,600. */
const MEDIA_TOKENS = 1000;
/** What every request costs, whatever it says. */
const BASE_TOKENS = 3;
/** A property's name in a definition and the marks around it; long names are two words. */
const KEY_TOKENS = 2;
/** So much of a request is read whole; of each longer text behind it a twelfth, because many texts make a good sample. */
const READ_WHOLE_BYTES = 1024;
const SHORT_TEXT_BYTES = 64;
/** Deeper names are not remembered: no dialect nests its own words so far. */
const REMEMBERED_DEPTH = 32;

/** About 0.5 ms. */
const STEP_BYTES = 64 * 1024;

const QUOTE = 34;
const COLON = 58;
const OPEN_BRACKET = 91;
const BACKSLASH = 92;
const CLOSE_BRACKET = 93;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;

export function estimateRequestTokens(bytes: Buffer): number {
  return finish(estimateSteps(bytes));
}

/** The same in steps. */
export function* estimateSteps(bytes: Buffer): Steps<number> {
  const reading = {
    at: 0,
    tokens: BASE_TOKENS,
    depth: 0,
    top: 0,
    key: 0,
    readBytes: 0,
    names: new Uint8Array(REMEMBERED_DEPTH),
  };
  for (;;) {
    readOn(bytes, reading, reading.at + STEP_BYTES);
    if (reading.at >= bytes.length) return Math.ceil(reading.tokens);
    yield;
  }
}

interface Reading {
  at: number;
  tokens: number;
  depth: number;
  top: number;
  key: number;
  readBytes: number;
  /** The last name at each depth: what an object stands under. */
  readonly names: Uint8Array;
}

function readOn(bytes: Buffer, reading: Reading, until: number): void {
  const { names } = reading;
  let { at: i, tokens, depth, top, key, readBytes } = reading;
  const end = Math.min(until, bytes.length);
  while (i < end) {
    const byte = bytes[i] as number;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      depth += 1;
      i += 1;
      continue;
    }
    if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth -= 1;
    if (byte !== QUOTE) {
      i += 1;
      continue;
    }
    const start = i + 1;
    const quote = endOfString(bytes, start);
    i = skipBlanks(bytes, quote + 1);
    if (bytes[i] === COLON) {
      key = flagsOfKey(bytes, start, quote);
      if (depth < REMEMBERED_DEPTH) names[depth] = key;
      // Written with escapes, a name is not recognised: whatever it means, it is counted.
      if (depth === 1) top = key === 0 && hasEscape(bytes, start, quote) ? PROMPT : key;
      else if ((top & DEFINITIONS) !== 0) tokens += KEY_TOKENS + ((quote - start) >> 4);
      if ((key & ROLE) !== 0 && depth > 1) tokens += MESSAGE_TOKENS;
    } else if ((top & (PROMPT | DEFINITIONS)) !== 0 && (key & SILENT) === 0) {
      const isMedia = (key & MEDIA) !== 0 || ((key & CONTENT) !== 0 && ((names[depth - 1] ?? 0) & HOLDER) !== 0);
      if (isMedia) tokens += MEDIA_TOKENS;
      else {
        const share =
          readBytes < READ_WHOLE_BYTES ? SAMPLED_BYTES : Math.max(SHORT_TEXT_BYTES, Math.floor((quote - start) / 12));
        tokens += estimateJsonTextTokens(bytes, start, quote, Math.min(share, SAMPLED_BYTES));
        readBytes += quote - start;
      }
    }
  }
  reading.at = i;
  reading.tokens = tokens;
  reading.depth = depth;
  reading.top = top;
  reading.key = key;
  reading.readBytes = readBytes;
}

function hasEscape(bytes: Buffer, start: number, end: number): boolean {
  for (let i = start; i < end; i++) if (bytes[i] === BACKSLASH) return true;
  return false;
}

function skipBlanks(bytes: Buffer, from: number): number {
  let i = from;
  while (i < bytes.length && (bytes[i] as number) <= 32) i += 1;
  return i;
}
