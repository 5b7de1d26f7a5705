/**
 * Watches an answer go by and finds out what it cost: usage and model, in whichever provider's shape, from JSON,
 * server-sent events and AWS event streams, encoded or not. It changes nothing, holds one event at a time, and
 * counts what was delivered, so that an answer that breaks off can be settled too (spec 3, 8).
 */
import type { LlmFacts } from "../../core/facts.ts";
import { createSseParser, type SseEvent } from "../../http/sse.ts";
import { isMembers, type Members, parseMembers, parseValue } from "../../json/json.ts";
import { JsonScanner, jsonKeys } from "../../json/json-scanner.ts";
import { createEventStreamReader } from "../encoding/aws-event-stream.ts";
import { decodeAnswer, isEncoded } from "../encoding/decode-response.ts";
import { endOfEvent, isTooComplex } from "../encoding/stream-events.ts";
import { AnswerText, estimateTextTokens } from "./estimate-tokens.ts";
import { endsEvent, modelOf, textOf, usageEventAt, usageOf, wholeEvents } from "./event-content.ts";
import { mergeUsage, readUsage, type Usage, writeUsage } from "./usage.ts";

export interface UsageTap {
  /** `usageAt`: what `usageEventAt` says of a chunk of server-sent events, where the caller has asked it. */
  data(chunk: Buffer, usageAt?: number): void;
  /** The answer ended as it should. */
  end(): void;
  /** It broke off, or the client left. */
  abort(): void;
}

export interface TapReport extends AnswerReport {
  readonly complete: boolean;
}

/** `report` is called once, when the answer ends or breaks off. */
export function createUsageTap(
  contentType: string | undefined,
  contentEncoding: string | undefined,
  report: (report: TapReport) => void,
): UsageTap {
  const reader = createAnswerReader(contentType, contentEncoding);
  let reported = false;
  const finish = (complete: boolean): void => {
    if (reported) return;
    reported = true;
    const { usage, responseModel, uncountedTokens } = reader.finish(complete);
    report({ usage, responseModel, uncountedTokens, complete });
  };
  return {
    data: reader.data,
    end: () => finish(true),
    abort: () => finish(false),
  };
}

/** The report as facts: real counts where the provider gave them, else what was asked and what was delivered. */
export function settleUsage(facts: LlmFacts, report: TapReport): void {
  if (report.responseModel !== undefined) facts.responseModel = report.responseModel;
  const { usage, uncountedTokens, complete } = report;
  if (usage !== undefined) {
    // A stream that broke off wrote more than it had counted.
    if (uncountedTokens === 0) {
      writeUsage(facts, usage);
      return;
    }
    const outputTokens = usage.outputTokens + uncountedTokens;
    writeUsage(facts, {
      ...usage,
      outputTokens,
      totalTokens: Math.max(usage.totalTokens, usage.inputTokens + outputTokens),
    });
  } else if (uncountedTokens > 0 || !complete) {
    const inputTokens = facts.estimatedTokens ?? 0;
    writeUsage(facts, { inputTokens, outputTokens: uncountedTokens, totalTokens: inputTokens + uncountedTokens });
  }
}

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

/** What an answer said of itself. */
export interface AnswerReport {
  /** What the provider said, if it said something. */
  readonly usage: Usage | undefined;
  readonly responseModel: string | undefined;
  /** Estimated tokens of the text that no usage counts: all of it if there was none, what came after it if it broke off. */
  readonly uncountedTokens: number;
}

/** Adds up what events say; of the chunks that were not read it supposes what it saw in the others. */
export function createEventMeter() {
  let usage: Members | undefined;
  let model: string | undefined;
  let bytes = 0;
  let bytesRead = 0;
  let tokensRead = 0;
  /** Anthropic's first event counts the question and one token of the answer: nothing of what follows. */
  let isFirstWord = false;
  return {
    bytes(size: number, isRead: boolean): void {
      bytes += size;
      if (isRead) bytesRead += size;
    },
    /** True if the event counts all that was said before it. */
    event(data: string): boolean {
      const event = isTooComplex(data) ? usageAtEnd(data) : parseMembers(data);
      if (event === undefined) return false;
      model ??= modelOf(event);
      const counted = usageOf(event);
      if (counted !== undefined) {
        usage = mergeUsage(usage, counted);
        isFirstWord = event.type === "message_start";
      }
      if (counted !== undefined && countsOutput(counted)) {
        bytes = 0;
        bytesRead = 0;
        tokensRead = 0;
        return true;
      }
      const text = textOf(event);
      if (text !== "") tokensRead += estimateTextTokens(Buffer.from(text));
      return false;
    },
    // Methods, no getters: a literal with getters is slow, and V8 keeps what they know until its next full collection.
    knowsModel(): boolean {
      return model !== undefined;
    },
    /** Only the model: what it says besides was counted. */
    nameIn(data: string): void {
      const event = model === undefined && !isTooComplex(data) ? parseMembers(data) : undefined;
      if (event !== undefined) model = modelOf(event);
    },
    knowsAll(): boolean {
      return usage !== undefined && !isFirstWord && model !== undefined;
    },
    finish(complete: boolean): AnswerReport {
      const countsAll = complete && usage !== undefined && !isFirstWord;
      // A chunk that holds usage is whole: what follows in it was read.
      const uncounted = bytesRead === 0 ? tokensRead : Math.ceil((tokensRead * bytes) / bytesRead);
      return { usage: readUsage(usage), responseModel: model, uncountedTokens: countsAll ? 0 : uncounted };
    },
  };
}

/** The first chunks of some streams count only their input: what they say is not counted yet. */
function countsOutput(usage: Members): boolean {
  const { candidatesTokenCount, output_tokens, completion_tokens, outputTokens, outputTokenCount } = usage;
  return [candidatesTokenCount, output_tokens, completion_tokens, outputTokens, outputTokenCount].some(
    (count) => typeof count === "number",
  );
}

export interface LargeEvent {
  /** The offset behind the blank line that ends the event, or -1 if it goes on. */
  push(chunk: Buffer): number;
  /** An event with the usage alone, as JSON; undefined if the end held none. */
  usage(): string | undefined;
}

const TAIL_BYTES = 16 * 1024;

export function createLargeEvent(): LargeEvent {
  let tail = Buffer.alloc(0);
  return {
    push(chunk) {
      const before = tail.length;
      const bytes = Buffer.concat([tail, chunk]);
      // The blank line may have begun in the chunk before.
      const end = endOfEvent(bytes, Math.max(0, before - 3));
      tail = Buffer.from(
        bytes.subarray(Math.max(0, (end < 0 ? bytes.length : end) - TAIL_BYTES), end < 0 ? undefined : end),
      );
      return end < 0 ? -1 : Math.max(0, end - before);
    },
    usage() {
      const event = usageIn(tail);
      return event && JSON.stringify(event);
    },
  };
}

/** The same of an event that was held, but is too complex to be parsed. */
export function usageAtEnd(data: string): Members | undefined {
  return usageIn(Buffer.from(data.slice(-TAIL_BYTES)));
}

function usageIn(tail: Buffer): Members | undefined {
  const at = tail.lastIndexOf(USAGE);
  if (at < 0) return undefined;
  let start = at + USAGE.length;
  while (tail[start] === SPACE) start += 1;
  const end = endOfObject(tail, start);
  if (end < 0) return undefined;
  const usage = parseValue(tail.subarray(start, end));
  return isMembers(usage) && readUsage(usage) !== undefined ? { usage } : undefined;
}

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
