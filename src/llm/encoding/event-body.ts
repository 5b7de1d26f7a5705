/**
 * The JSON of one event of a stream, parsed and written in steps if it is large. An event with too many values is not
 * read at all: no model writes one, and parsing it would hold up everybody else.
 */

import { ExpectedError } from "../../base/expected-error.ts";
import { SLICED_BYTES, type Steps } from "../../base/turns.ts";
import { type Members, parseMembers } from "../../json/json.ts";
import { parseMembersInSteps, stringifyInSteps } from "../../json/json-steps.ts";
import { hasMoreTokens } from "../../json/json-tokens.ts";

/** Commas, opening brackets and, twice, colons. It is read for its usage, translated and written in one turn: 40 ms. */
const MAX_EVENT_TOKENS = 40_000;

export class EventTooComplex extends ExpectedError {
  constructor() {
    super(`an event of the stream has more than ${MAX_EVENT_TOKENS} values and names`);
    this.name = "EventTooComplex";
  }
}

export function isTooComplex(data: string): boolean {
  return hasMoreTokens(data, MAX_EVENT_TOKENS);
}

/** Undefined if it is no object. Throws EventTooComplex. */
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

/** `isLarge`: the event that it came of was. */
export function* writeEventInSteps(body: Members, isLarge: boolean): Steps<string> {
  return isLarge ? yield* stringifyInSteps(body) : JSON.stringify(body);
}
