/**
 * Parses and writes the JSON of stream events, and finds the end of a server-sent event. Large events are processed in
 * steps, and events with too many values are rejected, because parsing them would block the event loop.
 */
import { ExpectedError } from "../../base/errors.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { type Members, parseMembers } from "../../json/json.ts";
import { exceedsTokens } from "../../json/parse-cost.ts";
import { parseMembersInSteps, stringifyInSteps } from "../../json/parse-in-steps.ts";

const MAX_EVENT_TOKENS = 40_000;

export class EventTooComplex extends ExpectedError {
  constructor() {
    super(`an event of the stream has more than ${MAX_EVENT_TOKENS} values and names`);
    this.name = "EventTooComplex";
  }
}

export function isTooComplex(data: string): boolean {
  return exceedsTokens(data, MAX_EVENT_TOKENS);
}

/** Returns undefined if the data is not a JSON object. Throws `EventTooComplex` if it has too many values and names. */
export function parseEvent(data: string): Members | undefined {
  if (isTooComplex(data)) throw new EventTooComplex();
  return parseMembers(data);
}

export function* parseEventInSteps(data: string): Steps<Members | undefined> {
  if (data.length <= SLICED_BYTES) return parseEvent(data);
  if (isTooComplex(data)) throw new EventTooComplex();
  yield;
  return yield* parseMembersInSteps(Buffer.from(data));
}

/** `isLarge` is true if the event as received was too large to process without yielding. */
export function* writeEventInSteps(body: Members, isLarge: boolean): Steps<string> {
  return isLarge ? yield* stringifyInSteps(body) : JSON.stringify(body);
}

const LF = 10;
const CR = 13;

const FIRST_SEARCH_BYTES = 1024;

/** Returns the offset after the first blank line, or -1. Accepts LF, CRLF, and CR line endings. */
export function endOfEvent(bytes: Buffer, from: number): number {
  // Searching all bytes for a line ending that does not occur, for each of many events, would be quadratic.
  for (let size = FIRST_SEARCH_BYTES; from + size < bytes.length; size *= 4) {
    const end = firstEnd(bytes.subarray(0, from + size), from);
    if (end >= 0) return end;
  }
  return firstEnd(bytes, from);
}

function firstEnd(bytes: Buffer, from: number): number {
  const lf = endByLineFeeds(bytes, from);
  const cr = endByReturns(bytes, from, lf < 0 ? bytes.length : lf);
  return cr < 0 ? lf : cr;
}

function endByLineFeeds(bytes: Buffer, from: number): number {
  for (let i = bytes.indexOf(LF, from); i >= 0; i = bytes.indexOf(LF, i + 1)) {
    if (bytes[i + 1] === LF) return i + 2;
    if (bytes[i + 1] !== CR) continue;
    if (bytes[i + 2] === LF) return i + 3;
    // A lone CR is also a blank line. If it is the last byte, its LF may follow in the next chunk.
    if (i + 2 < bytes.length) return i + 2;
  }
  return -1;
}

/** Finds a blank line between CR line endings, which the SSE standard allows. Ignores events that end after `stop`. */
function endByReturns(bytes: Buffer, from: number, stop: number): number {
  for (let i = bytes.indexOf(CR, from); i >= 0 && i + 2 <= stop; i = bytes.indexOf(CR, i + 1)) {
    if (bytes[i + 1] === CR) return i + 2;
  }
  return -1;
}
