/**
 * Parses and writes the JSON of stream events, and finds the end of a server-sent event. Large events are processed in
 * steps, and events with too many values are rejected, because parsing them would block the event loop.
 */
import { ExpectedError } from "../../base/errors.ts";
import { InputError, peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import type { Members } from "../../json/json.ts";
import { exceedsItems } from "../../json/parse-cost.ts";
import { readMembersInSteps, stringifyInSteps } from "../../json/parse-in-steps.ts";
import { readMembers } from "../../json/read-json.ts";

const EVENT = peerInput("llm-provider/stream-event");

export class EventTooComplex extends ExpectedError {
  constructor() {
    super(`an event of the stream has more than ${EVENT.maxItems} values and names`);
    this.name = "EventTooComplex";
  }
}

export function isTooComplex(data: string): boolean {
  return exceedsItems(EVENT, data);
}

/** Returns undefined if the data is not a JSON object. Throws `EventTooComplex` if it has too many values and names. */
export function parseEvent(data: string): Members | undefined {
  const event = readMembers(EVENT, data);
  if (event === undefined && isTooComplex(data)) throw new EventTooComplex();
  return event;
}

export function* parseEventInSteps(data: string): Steps<Members | undefined> {
  if (data.length <= SLICED_BYTES) return parseEvent(data);
  try {
    return yield* readMembersInSteps(EVENT, Buffer.from(data));
  } catch (error) {
    throw error instanceof InputError ? new EventTooComplex() : error;
  }
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
