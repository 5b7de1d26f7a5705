/**
 * Reads answers as they go by: JSON, server-sent events, AWS event streams, encoded or not. One event is held at a
 * time; what is too large to read is passed by.
 */
import { createSseParser, type SseEvent } from "../../http/sse.ts";
import { isMembers, type Members, parseMembers, parseValue } from "../../json/json.ts";
import { jsonKeys } from "../../json/json-keys.ts";
import { JsonScanner } from "../../json/json-scanner.ts";
import { createEventStreamReader } from "../encoding/aws-event-stream.ts";
import { decodeAnswer, isEncoded } from "../encoding/decode-answer.ts";
import { isTooComplex } from "../encoding/event-body.ts";
import { AnswerText } from "./estimate-answer.ts";
import { type AnswerReport, createEventMeter } from "./event-meter.ts";
import { createLargeEvent, type LargeEvent } from "./large-event.ts";
import { quickUsage } from "./quick-usage.ts";
import { endsEvent, modelOf, usageEventAt, usageOf, wholeEvents } from "./stream-event.ts";
import { mergeUsage, readUsage, type Usage } from "./usage.ts";

/** An event larger than this is passed on unread. */
const MAX_EVENT_BYTES = 2 * 1024 * 1024;
const MAX_VALUE_BYTES = 64 * 1024;
/** Encoded answers are decoded at their end, up to this many bytes. */
const MAX_ENCODED_BYTES = 4 * 1024 * 1024;
/** It is decoded and read in one turn: 20 ms each. */
const MAX_READ_DECODED_BYTES = 8 * 1024 * 1024;
const DECODED_PIECE_BYTES = 64 * 1024;
/** The first bytes are kept for their text, later ones by sample: reading each would cost a tenth of a stream. */
const FIRST_BYTES = 2 * 1024;
const SAMPLE_EVERY = 16;
const MAX_SAMPLED_BYTES = 4 * 1024;
const PARSED_BYTES = 4 * 1024;
const NO_BYTES = Buffer.alloc(0);
const BLANK_LINE = Buffer.from("\n\n");
const ANSWER_KEYS = jsonKeys("usage", "usageMetadata", "model", "modelVersion");

export interface AnswerReader {
  data(chunk: Buffer, usageAt?: number): void;
  /** As `UsageTap.plain`. */
  readonly plain?: (text: string) => void;
  /** `complete`: it ended as it should, so that the last usage said counts everything. */
  finish(complete: boolean): AnswerReport;
}

export function createAnswerReader(contentType: string | undefined, contentEncoding: string | undefined): AnswerReader {
  return isEncoded(contentEncoding) ? createEncodedReader(contentType, contentEncoding) : createReader(contentType);
}

function createReader(contentType = ""): AnswerReader {
  if (contentType.startsWith("text/event-stream")) return createSseReader();
  if (contentType.startsWith("application/vnd.amazon.eventstream")) return createAwsReader();
  return createJsonReader(contentType);
}

function createSseReader(): AnswerReader {
  const meter = createEventMeter();
  let atBoundary = true;
  let bytesSeen = 0;
  let bytesLooked = 0;
  /** Whole events whose text is read only if the stream turns out to have no usage. */
  let samples: Buffer[] = [];
  let sampledBytes = 0;
  /** Those whose names of models are known. */
  let namedSamples = 0;
  const take = (data: string): void => {
    // The first name counts, and it may stand in what was put aside.
    if (samples.length > namedSamples && !meter.knowsModel()) {
      readSamples((one) => meter.nameIn(one.data), meter.knowsModel);
      namedSamples = samples.length;
    }
    if (!meter.event(data)) return;
    samples = [];
    namedSamples = 0;
    sampledBytes = 0;
  };
  let parser = createSseParser((event) => take(event.data), MAX_EVENT_BYTES);
  let large: LargeEvent | undefined;

  function readSamples(onEvent: (event: SseEvent) => void, isEnough: () => boolean = never): void {
    const held = createSseParser(onEvent, MAX_EVENT_BYTES);
    for (const chunk of samples) {
      if (isEnough()) return;
      held.push(chunk);
    }
  }

  /** Whole events without usage: most need no reading, ever. */
  function isSampled(bytes: number): boolean {
    return bytesLooked <= FIRST_BYTES + (bytesSeen + bytes) / SAMPLE_EVERY;
  }

  function passBy(bytes: number): void {
    bytesSeen += bytes;
    meter.bytes(bytes, false);
  }

  function putAside(chunk: Buffer): void {
    if (!isSampled(chunk.length)) {
      passBy(chunk.length);
      return;
    }
    bytesSeen += chunk.length;
    const end = wholeEvents(chunk, MAX_SAMPLED_BYTES) || chunk.length;
    const sample = end === chunk.length ? chunk : chunk.subarray(0, end);
    bytesLooked += end;
    if (end < chunk.length) meter.bytes(chunk.length - end, false);
    // Too much to keep is read at once instead.
    if (sampledBytes + end > MAX_SAMPLED_BYTES) read(sample);
    else {
      samples.push(sample);
      sampledBytes += end;
      meter.bytes(end, true);
    }
  }

  /** Only of an event beyond all measure: its end may hold usage (OpenAI repeats whole images in its last event). */
  function passLarge(chunk: Buffer): void {
    if (large === undefined) return;
    const end = large.push(chunk);
    if (end < 0) return;
    const usage = large.usage();
    large = undefined;
    parser = createSseParser((event) => take(event.data), MAX_EVENT_BYTES);
    if (usage !== undefined) take(usage);
    if (end < chunk.length) read(chunk.subarray(end));
  }

  function read(chunk: Buffer): void {
    meter.bytes(chunk.length, true);
    try {
      parser.push(chunk);
    } catch {
      large = createLargeEvent();
      passLarge(chunk);
    }
  }

  const reader: AnswerReader = {
    plain(text) {
      if (!atBoundary || large !== undefined) reader.data(Buffer.from(text, "latin1"));
      else if (isSampled(text.length)) putAside(Buffer.from(text, "latin1"));
      else passBy(text.length);
    },
    data(chunk, usageAt) {
      const endsWhole = endsEvent(chunk);
      const isWhole = atBoundary && endsWhole;
      atBoundary = endsWhole;
      if (large !== undefined) passLarge(chunk);
      else if (!isWhole) read(chunk);
      else {
        const at = usageAt ?? usageEventAt(chunk);
        if (at !== 0) putAside(at < 0 ? chunk : chunk.subarray(0, at));
        if (at >= 0) read(at === 0 ? chunk : chunk.subarray(at));
      }
    },
    finish(complete) {
      // Some servers leave out the blank line behind their last event.
      if (complete && !atBoundary && large === undefined) read(BLANK_LINE);
      if (!complete || !meter.knowsAll()) readSamples((event) => meter.event(event.data));
      return meter.finish(complete);
    },
  };
  return reader;
}

function never(): boolean {
  return false;
}

function createAwsReader(): AnswerReader {
  const meter = createEventMeter();
  let readable = true;
  const reader = createEventStreamReader((message) => meter.event(awsEventText(message.payload)), MAX_EVENT_BYTES);
  return {
    data(chunk) {
      if (!readable) return;
      meter.bytes(chunk.length, true);
      try {
        reader.push(chunk);
      } catch {
        readable = false;
      }
    },
    finish: meter.finish,
  };
}

/** The payload of `invoke-with-response-stream` wraps the model's own event in base64. */
export function awsEventText(payload: Buffer): string {
  const text = payload.toString("utf8");
  if (!text.startsWith('{"bytes"') || isTooComplex(text)) return text;
  const wrapped = parseMembers(text)?.bytes;
  return typeof wrapped === "string" ? Buffer.from(wrapped, "base64").toString("utf8") : text;
}

function createJsonReader(contentType: string): AnswerReader {
  const text = new AnswerText(contentType);
  let usage: Members | undefined;
  let model: string | undefined;
  let bytesSeen = 0;
  let scanner: JsonScanner | undefined;
  /** Most answers are one chunk: its ends say it, or parsing it is cheaper than looking through it. */
  let only: Buffer | undefined;

  function scan(chunk: Buffer): void {
    scanner ??= new JsonScanner({
      keys: ANSWER_KEYS,
      maxValueBytes: MAX_VALUE_BYTES,
      maxDepth: Number.MAX_SAFE_INTEGER,
      value(key, _span, bytes) {
        const value = parseValue(bytes);
        if (key === "model" || key === "modelVersion") {
          if (typeof value === "string" && value !== "") model ??= value;
        } else if (isMembers(value)) usage = mergeUsage(usage, value);
      },
    });
    if (only !== undefined) scanner.push(only);
    only = undefined;
    scanner.push(chunk);
  }

  return {
    data(chunk) {
      text.add(chunk);
      if (bytesSeen === 0) only = chunk;
      else scan(chunk);
      bytesSeen += chunk.length;
    },
    finish() {
      const quick = only && quickUsage(only);
      if (quick) return { usage: readUsage(quick.usage), responseModel: quick.model, uncountedTokens: 0 };
      const whole = only && only.length <= PARSED_BYTES ? parseMembers(only.toString("utf8")) : undefined;
      if (whole) return reportOf(readUsage(usageOf(whole)), modelOf(whole));
      scan(NO_BYTES);
      return reportOf(readUsage(usage), model);
    },
  };

  /** Without usage its text is all that tells what it cost. */
  function reportOf(counted: Usage | undefined, responseModel: string | undefined): AnswerReport {
    return { usage: counted, responseModel, uncountedTokens: counted === undefined ? text.tokens() : 0 };
  }
}

/** Keeps the encoded bytes, bounded, and decodes them when the answer ends: the counts must be there when it settles. */
function createEncodedReader(contentType: string | undefined, contentEncoding: string | undefined): AnswerReader {
  const chunks: Buffer[] = [];
  let size = 0;
  return {
    data(chunk) {
      size += chunk.length;
      if (size <= MAX_ENCODED_BYTES) chunks.push(chunk);
      else chunks.length = 0;
    },
    finish(complete) {
      const reader = createReader(contentType);
      const decoded =
        size <= MAX_ENCODED_BYTES
          ? decodeAnswer(Buffer.concat(chunks), contentEncoding, MAX_READ_DECODED_BYTES)
          : undefined;
      // In pieces as from a network: the readers hold one event, not all of them.
      for (let at = 0; decoded !== undefined && at < decoded.length; at += DECODED_PIECE_BYTES)
        reader.data(decoded.subarray(at, at + DECODED_PIECE_BYTES));
      return reader.finish(complete);
    },
  };
}
