/**
 * Parses and writes the JSON of one stream event, in steps if it is large, and finds where a server-sent event ends. An
 * event with too many values is rejected, because parsing it would block the event loop; models do not send such
 * events.
 */
import { ExpectedError } from "../../base/errors.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { type Members, parseMembers } from "../../json/json.ts";
import { exceedsTokens } from "../../json/parse-cost.ts";
import { parseMembersInSteps, stringifyInSteps } from "../../json/parse-in-steps.ts";

/** An event with this many tokens (see `parse-cost.ts`) takes about 40 ms to read, translate, and write. */
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

/** Undefined if the data is not a JSON object. Throws EventTooComplex. */
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

/** `isLarge`: the original event was large. */
export function* writeEventInSteps(body: Members, isLarge: boolean): Steps<string> {
  return isLarge ? yield* stringifyInSteps(body) : JSON.stringify(body);
}

const LF = 10;
const CR = 13;

/** The offset after the first blank line, which ends the event, or -1. Accepts all three line endings. */
export function endOfEvent(bytes: Buffer, from: number): number {
  const lf = endByLineFeeds(bytes, from);
  const cr = endByReturns(bytes, from, lf < 0 ? bytes.length : lf);
  return cr < 0 ? lf : cr;
}

function endByLineFeeds(bytes: Buffer, from: number): number {
  for (let i = bytes.indexOf(LF, from); i >= 0; i = bytes.indexOf(LF, i + 1)) {
    if (bytes[i + 1] === LF) return i + 2;
    if (bytes[i + 1] !== CR) continue;
    if (bytes[i + 2] === LF) return i + 3;
    // A lone CR is also a blank line. At the end of the bytes, its LF may follow in the next chunk.
    if (i + 2 < bytes.length) return i + 2;
  }
  return -1;
}

/** The standard allows CR alone, although no known server uses it. Considers only events that end before `stop`. */
function endByReturns(bytes: Buffer, from: number, stop: number): number {
  for (let i = bytes.indexOf(CR, from); i >= 0 && i + 2 <= stop; i = bytes.indexOf(CR, i + 1)) {
    if (bytes[i + 1] === CR) return i + 2;
  }
  return -1;
}
