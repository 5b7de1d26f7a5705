/**
 * The usage and model of a whole JSON answer, found from its ends without parsing what lies between. The bytes
 * `"usage":` cannot stand inside a JSON string (its quotes would be escaped), so they are a member's name; that it
 * is a member of the outermost object shows in what follows: one closing brace and no other bracket. Whatever is
 * less clear than that is left to the parser.
 */
import { isMembers, type Members, parseValue } from "../../json/json.ts";

export interface QuickAnswer {
  readonly usage: Members;
  readonly model: string | undefined;
}

const USAGE = Buffer.from('"usage":');
const MODEL = Buffer.from('"model":"');
const QUOTE = 34;
const BACKSLASH = 92;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const OPEN_BRACKET = 91;
const CLOSE_BRACKET = 93;
const SPACE = 32;
/** A usage object and what follows it are this small; a name stands this close to the beginning. */
const MAX_LOOKED_AT = 1024;

/** Undefined if it cannot be said without parsing. */
export function quickUsage(bytes: Buffer): QuickAnswer | undefined {
  const at = bytes.lastIndexOf(USAGE);
  if (at < 0 || bytes.length - at > MAX_LOOKED_AT || bytes[0] !== OPEN_BRACE) return undefined;
  let start = at + USAGE.length;
  while (bytes[start] === SPACE) start += 1;
  const end = endOfObject(bytes, start);
  if (end < 0 || !closesOutermost(bytes, end)) return undefined;
  const model = outermostModel(bytes, at);
  if (model === false) return undefined;
  const usage = parseValue(bytes.subarray(start, end));
  return isMembers(usage) ? { usage, model } : undefined;
}

/** Behind the brace that closes the object at `start`. Strings are not told apart: a brace in one makes the piece no JSON. */
export function endOfObject(bytes: Buffer, start: number): number {
  if (bytes[start] !== OPEN_BRACE) return -1;
  let depth = 0;
  for (let i = start; i < bytes.length; i++) {
    if (bytes[i] === OPEN_BRACE) depth += 1;
    else if (bytes[i] === CLOSE_BRACE) {
      depth -= 1;
      if (depth === 0) return i + 1;
    }
  }
  return -1;
}

function closesOutermost(bytes: Buffer, from: number): boolean {
  let closed = false;
  for (let i = from; i < bytes.length; i++) {
    const byte = bytes[i] as number;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET || byte === CLOSE_BRACKET) return false;
    if (closed && byte > SPACE) return false;
    if (byte === CLOSE_BRACE) closed = true;
  }
  return closed;
}

/** Undefined if there is none; false if it cannot be told. */
function outermostModel(bytes: Buffer, before: number): string | undefined | false {
  const at = bytes.indexOf(MODEL);
  if (at < 0) return bytes.includes('"model"') ? false : undefined;
  if (at > before || at > MAX_LOOKED_AT) return false;
  for (let i = 1; i < at; i++) {
    const byte = bytes[i];
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) return false;
  }
  const start = at + MODEL.length;
  const end = bytes.indexOf(QUOTE, start);
  if (end <= start || bytes[end - 1] === BACKSLASH) return false;
  const model = bytes.toString("utf8", start, end);
  return model.includes("\\") ? false : model;
}
