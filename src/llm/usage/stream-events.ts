/**
 * Parses the events of response streams (server-sent events and the AWS binary event stream), and finds their usage,
 * model, and output text in any dialect. Large events are processed in steps, and events with too many values are
 * rejected.
 */

import { crc32 } from "node:zlib";
import { ExpectedError } from "../../base/errors.ts";
import { InputError, type PeerInput, peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES, type Steps } from "../../base/sliced-work.ts";
import { isMembers, type Members } from "../../json/json.ts";
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

interface EventStreamMessage {
  readonly messageType: string;
  readonly type: string;
  readonly payload: Buffer;
}

interface EventStreamReader {
  /** Calls `onMessage` for each message that the chunk completes. Throws if the bytes are not a valid stream. */
  push(chunk: Buffer): void;
  atBoundary(): boolean;
}

const PRELUDE_BYTES = 12;
const CHECKSUM_BYTES = 4;
const BYTES_HEADER = 6;
const STRING_HEADER = 7;
/** Maps a header type to the size of its value. `BYTES_HEADER` and `STRING_HEADER` values have a variable size. */
const FIXED_BYTES: Readonly<Record<number, number>> = { 0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16 };

export function createEventStreamReader(
  { maxBytes, maxItems }: PeerInput<"AWS event stream">,
  onMessage: (message: EventStreamMessage) => void,
): EventStreamReader {
  /** Chunks are joined only when the prelude or the message is complete, which avoids a copy per chunk. */
  let pieces: Buffer[] = [];
  let heldBytes = 0;
  let neededBytes = PRELUDE_BYTES;
  return {
    atBoundary: () => heldBytes === 0,
    push(chunk) {
      pieces.push(chunk);
      heldBytes += chunk.length;
      if (heldBytes < neededBytes) return;
      let bytes = pieces.length === 1 ? chunk : Buffer.concat(pieces, heldBytes);
      neededBytes = PRELUDE_BYTES;
      while (bytes.length >= PRELUDE_BYTES) {
        const total = bytes.readUInt32BE(0);
        if (total > maxBytes) throw new Error(`an event stream message is larger than ${maxBytes} bytes`);
        if (total < PRELUDE_BYTES + CHECKSUM_BYTES)
          throw new Error("an event stream message is shorter than its frame");
        if (crc32(bytes.subarray(0, 8)) !== bytes.readUInt32BE(8))
          throw new Error("the checksum of an event stream prelude is wrong");
        if (bytes.length < total) {
          neededBytes = total;
          break;
        }
        onMessage(readMessage(bytes.subarray(0, total), maxItems));
        bytes = bytes.subarray(total);
      }
      pieces = bytes.length === 0 ? [] : [bytes];
      heldBytes = bytes.length;
    },
  };
}

function readMessage(frame: Buffer, maxHeaders: number): EventStreamMessage {
  const end = frame.length - CHECKSUM_BYTES;
  if (crc32(frame.subarray(0, end)) !== frame.readUInt32BE(end))
    throw new Error("the checksum of an event stream message is wrong");
  const payloadStart = PRELUDE_BYTES + frame.readUInt32BE(4);
  if (payloadStart > end) throw new Error("the headers of an event stream message are longer than the message");
  let messageType = "event";
  let type = "";
  const headers = frame.subarray(0, payloadStart);
  let count = 0;
  for (let at = PRELUDE_BYTES; at < payloadStart; ) {
    count += 1;
    if (count > maxHeaders) throw new Error(`an event stream message has more than ${maxHeaders} headers`);
    // `headers` ends before the payload, so an invalid length throws instead of reading payload bytes.
    const nameEnd = at + 1 + headers.readUInt8(at);
    const kind = headers.readUInt8(nameEnd);
    const name = headers.toString("latin1", at + 1, nameEnd);
    const fixed = FIXED_BYTES[kind];
    if (fixed === undefined && kind !== BYTES_HEADER && kind !== STRING_HEADER)
      throw new Error("a header of an event stream message has a type that does not exist");
    const valueStart = nameEnd + 1 + (fixed === undefined ? 2 : 0);
    const valueEnd = valueStart + (fixed ?? headers.readUInt16BE(nameEnd + 1));
    if (valueEnd > payloadStart) throw new Error("a header of an event stream message is longer than the headers");
    if (kind === STRING_HEADER) {
      const value = headers.toString("utf8", valueStart, valueEnd);
      if (name === ":message-type") messageType = value;
      else if (name === ":event-type" || name === ":exception-type" || name === ":error-code") type = value;
    }
    at = valueEnd;
  }
  return { messageType, type, payload: frame.subarray(payloadStart, end) };
}

const MAY_HOLD_USAGE = /"(?:usage|usageMetadata|amazon-bedrock-invocationMetrics)"\s*:\s*\{/;

export function mayHoldUsage(data: string): boolean {
  return MAY_HOLD_USAGE.test(data);
}

/** The pattern omits the quote, because `indexOf` searches for the first byte, and quotes are frequent in JSON. */
const NAME = Buffer.from("usage");
const QUOTE = 34;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
const COMMA = 44;
/** This distance covers the suffix `Metadata`, the quote, the colon, and some whitespace. */
const NAME_TO_BRACE_BYTES = 24;

const BLANK_LINE = Buffer.from("\n\n");

/**
 * Searches raw server-sent events for a `usage` or `usageMetadata` object without decoding them. Returns the offset of
 * the first event that may hold usage, or -1. `bytes` must start with an event.
 */
export function usageEventAt(bytes: Buffer): number {
  for (let at = bytes.indexOf(NAME); at >= 0; at = bytes.indexOf(NAME, at + NAME.length)) {
    if (bytes[at - 1] !== QUOTE) continue;
    const from = at + NAME.length;
    const stop = Math.min(bytes.length, from + NAME_TO_BRACE_BYTES);
    for (let i = from; i < stop; i++) {
      if (bytes[i] === OPEN_BRACE) return startOfEvent(bytes, at);
      // Many servers send `"usage": null` in each event. The next brace then belongs to another member or event.
      if (bytes[i] === COMMA || bytes[i] === CLOSE_BRACE) break;
    }
  }
  return -1;
}

/** Recognizes only LF line endings. With other line endings, the result can be the start of an earlier event. */
function startOfEvent(bytes: Buffer, at: number): number {
  const blank = bytes.lastIndexOf(BLANK_LINE, at);
  return blank < 0 ? 0 : blank + BLANK_LINE.length;
}

/**
 * Returns the length of `bytes` if it is at most `max`, and otherwise the length of the complete events within the
 * first `max` bytes. `bytes` must start with an event.
 */
export function wholeEvents(bytes: Buffer, max: number): number {
  if (bytes.length <= max) return bytes.length;
  const blank = bytes.lastIndexOf(BLANK_LINE, max - BLANK_LINE.length);
  return blank < 0 ? 0 : blank + BLANK_LINE.length;
}

export function endsEvent(bytes: Buffer): boolean {
  const { length } = bytes;
  if (bytes[length - 1] !== LF) return false;
  return bytes[length - 2] === LF || (bytes[length - 2] === CR && bytes[length - 3] === LF);
}

export function findUsage(event: Members): Members | undefined {
  const usage =
    event.usage ??
    event.usageMetadata ??
    event["amazon-bedrock-invocationMetrics"] ??
    inner(event.message, "usage") ??
    inner(event.response, "usage");
  return isMembers(usage) ? usage : undefined;
}

export function findModel(event: Members): string | undefined {
  const model = event.model ?? event.modelVersion ?? inner(event.message, "model") ?? inner(event.response, "model");
  return typeof model === "string" && model !== "" ? model : undefined;
}

/** The text includes reasoning and tool arguments. */
export function findOutputText(event: Members): string {
  let text = "";
  for (const choice of list(event.choices)) {
    const delta = isMembers(choice.delta) ? choice.delta : isMembers(choice.message) ? choice.message : choice;
    text += string(delta.content) + string(delta.text) + string(delta.reasoning_content) + string(delta.refusal);
    for (const call of list(delta.tool_calls))
      text += string(inner(call.function, "name")) + string(inner(call.function, "arguments"));
  }
  for (const candidate of list(event.candidates)) {
    for (const part of list(inner(candidate.content, "parts"))) {
      text += string(part.text);
      if (isMembers(part.functionCall)) text += JSON.stringify(part.functionCall);
    }
  }
  if (typeof event.delta === "string") text += event.delta;
  else if (isMembers(event.delta)) {
    const { delta } = event;
    text += string(delta.text) + string(delta.partial_json) + string(delta.thinking);
    text += string(inner(delta.toolUse, "input")) + string(inner(delta.reasoningContent, "text"));
  }
  return text;
}

function inner(value: unknown, key: string): unknown {
  return isMembers(value) ? value[key] : undefined;
}

function list(value: unknown): readonly Members[] {
  return Array.isArray(value) ? value.filter(isMembers) : [];
}

function string(value: unknown): string {
  return typeof value === "string" ? value : "";
}
