/**
 * Reads usage and model from a response while it is delivered, in any provider's format. Tokens of delivered text that
 * no usage covers are estimated, so that an interrupted response can be settled too.
 */
import { decompress, isEncoded } from "../../base/decompress.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { LlmAttributes } from "../../core/request-attributes.ts";
import { createSseParser, type SseEvent } from "../../http/sse.ts";
import { isMembers, type Members } from "../../json/json.ts";
import { JsonScanner, jsonKeys } from "../../json/json-scanner.ts";
import { readMembers, tryReadJson } from "../../json/read-json.ts";
import { estimateTextTokens, ResponseSample } from "./estimate-tokens.ts";
import {
  createEventStreamReader,
  endOfEvent,
  endsEvent,
  findModel,
  findOutputText,
  findUsage,
  isTooComplex,
  usageEventAt,
  wholeEvents,
} from "./stream-events.ts";
import { mergeUsage, readUsage, type Usage, writeUsage } from "./usage.ts";

const EVENT = peerInput("llm-provider/stream-event");
const RESPONSE = peerInput("llm-provider/response");
const USAGE_VALUE = peerInput("llm-provider/usage");
const STREAM = peerInput("llm-provider/event-stream");
const AWS_STREAM = peerInput("llm-provider/bedrock-stream");

export interface UsageTap {
  /** `usageAt` is the result of `usageEventAt` for the chunk, if available. */
  data(chunk: Buffer, usageAt?: number): void;
  end(): void;
  abort(): void;
}

export interface TapReport extends UsageReport {
  readonly complete: boolean;
}

/** `report` is called once, at the first call of `end` or `abort`. */
export function createUsageTap(
  contentType: string | undefined,
  contentEncoding: string | undefined,
  report: (report: TapReport) => void,
): UsageTap {
  const reader = createUsageReader(contentType, contentEncoding);
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

export function settleUsage(attributes: LlmAttributes, report: TapReport): void {
  if (report.responseModel !== undefined) attributes.responseModel = report.responseModel;
  const { usage, uncountedTokens, complete } = report;
  if (usage !== undefined) {
    // An interrupted stream may have delivered text after its last usage.
    if (uncountedTokens === 0) {
      writeUsage(attributes, usage);
      return;
    }
    const outputTokens = usage.outputTokens + uncountedTokens;
    writeUsage(attributes, {
      ...usage,
      outputTokens,
      totalTokens: Math.max(usage.totalTokens, usage.inputTokens + outputTokens),
    });
  } else if (uncountedTokens > 0 || !complete) {
    const inputTokens = attributes.estimatedTokens ?? 0;
    writeUsage(attributes, { inputTokens, outputTokens: uncountedTokens, totalTokens: inputTokens + uncountedTokens });
  }
}

/** In larger server-sent events, only the last `TAIL_BYTES` are searched for usage. */
/** Larger compressed responses are not decoded. */
const MAX_ENCODED_BYTES = 4 * 1024 * 1024;
const COMPRESSED = peerInput("llm-provider/compressed-usage");
/** Reading a decoded stream does not yield, so only its start and end are read. */
const READ_FIRST_BYTES = 64 * 1024;
const READ_LAST_BYTES = 192 * 1024;
const DECODED_PIECE_BYTES = 64 * 1024;
/** Parsing every event would cost too much CPU time, so events after the first bytes are sampled. */
const FIRST_BYTES = 2 * 1024;
const SAMPLE_EVERY = 16;
const MAX_SAMPLED_BYTES = 4 * 1024;
const PARSED_BYTES = 4 * 1024;
const NO_BYTES = Buffer.alloc(0);
const BLANK_LINE = Buffer.from("\n\n");
const RESPONSE_KEYS = jsonKeys("usage", "usageMetadata", "model", "modelVersion");

interface UsageReader {
  data(chunk: Buffer, usageAt?: number): void;
  /** Counts bytes of a stream that are not read. The next chunk must start with an event. */
  skip?(bytes: number): void;
  /** `complete` is false if the response was interrupted. */
  finish(complete: boolean): UsageReport;
}

export function createUsageReader(contentType: string | undefined, contentEncoding: string | undefined): UsageReader {
  return isEncoded(contentEncoding) ? createEncodedReader(contentType, contentEncoding) : createReader(contentType);
}

function createReader(contentType = ""): UsageReader {
  if (contentType.startsWith("text/event-stream")) return createSseReader();
  if (contentType.startsWith("application/vnd.amazon.eventstream")) return createAwsReader();
  return createJsonReader(contentType);
}

function createSseReader(): UsageReader {
  const meter = createEventMeter();
  let atBoundary = true;
  let bytesSeen = 0;
  let bytesLooked = 0;
  /** Samples hold complete events. */
  let samples: Buffer[] = [];
  let sampledBytes = 0;
  let namedSamples = 0;
  const take = (data: string): void => {
    // The first model name in the stream counts, and it may be in a sample.
    if (samples.length > namedSamples && !meter.knowsModel()) {
      readSamples((one) => meter.nameIn(one.data), meter.knowsModel);
      namedSamples = samples.length;
    }
    if (!meter.event(data)) return;
    samples = [];
    namedSamples = 0;
    sampledBytes = 0;
  };
  let parser = createSseParser(STREAM, (event) => take(event.data));
  let large: LargeEvent | undefined;

  function readSamples(onEvent: (event: SseEvent) => void, isEnough: () => boolean = never): void {
    const held = createSseParser(STREAM, onEvent);
    for (const chunk of samples) {
      if (isEnough()) return;
      held.push(chunk);
    }
  }

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
    // If there is no room to keep the sample, it is read now.
    if (sampledBytes + end > MAX_SAMPLED_BYTES) read(sample);
    else {
      samples.push(sample);
      sampledBytes += end;
      meter.bytes(end, true);
    }
  }

  /** An event can hold whole images before its usage, so the end of an oversized event is searched. */
  function passLarge(chunk: Buffer): void {
    if (large === undefined) return;
    const end = large.push(chunk);
    if (end < 0) return;
    const usage = large.usage();
    large = undefined;
    parser = createSseParser(STREAM, (event) => take(event.data));
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

  const reader: UsageReader = {
    skip(bytes) {
      passBy(bytes);
      parser = createSseParser(STREAM, (event) => take(event.data));
      large = undefined;
      atBoundary = true;
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
      // Some servers omit the blank line after the last event.
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

function createAwsReader(): UsageReader {
  const meter = createEventMeter();
  let readable = true;
  const reader = createEventStreamReader(AWS_STREAM, (message) => meter.event(awsEventText(message.payload)));
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
    // Without the preceding messages, the start of a message is unknown.
    skip(bytes) {
      readable = false;
      meter.bytes(bytes, false);
    },
    finish: meter.finish,
  };
}

/** `invoke-with-response-stream` wraps the model's event in base64. */
export function awsEventText(payload: Buffer): string {
  const text = payload.toString("utf8");
  if (!text.startsWith('{"bytes"')) return text;
  const wrapped = readMembers(EVENT, text)?.bytes;
  return typeof wrapped === "string" ? Buffer.from(wrapped, "base64").toString("utf8") : text;
}

function createJsonReader(contentType: string): UsageReader {
  const text = new ResponseSample(contentType);
  let usage: Members | undefined;
  let model: string | undefined;
  let bytesSeen = 0;
  let scanner: JsonScanner | undefined;
  /** Holds the first chunk until a second chunk arrives. */
  let only: Buffer | undefined;

  function scan(chunk: Buffer): void {
    scanner ??= new JsonScanner({
      keys: RESPONSE_KEYS,
      input: RESPONSE,
      maxValueBytes: USAGE_VALUE.maxBytes,
      value(key, _span, bytes) {
        const value = tryReadJson(USAGE_VALUE, bytes);
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
      const whole = only && only.length <= PARSED_BYTES ? readMembers(RESPONSE, only) : undefined;
      if (whole) return reportOf(readUsage(findUsage(whole)), findModel(whole));
      scan(NO_BYTES);
      return reportOf(readUsage(usage), model);
    },
  };

  function reportOf(counted: Usage | undefined, responseModel: string | undefined): UsageReport {
    return { usage: counted, responseModel, uncountedTokens: counted === undefined ? text.tokens() : 0 };
  }
}

/** Buffers up to `MAX_ENCODED_BYTES` and decodes them synchronously at the end. */
function createEncodedReader(contentType: string | undefined, contentEncoding: string | undefined): UsageReader {
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
        size <= MAX_ENCODED_BYTES ? decompress(COMPRESSED, Buffer.concat(chunks), contentEncoding) : undefined;
      chunks.length = 0;
      if (decoded !== undefined) readDecoded(reader, decoded);
      return reader.finish(complete);
    },
  };
}

function readDecoded(reader: UsageReader, decoded: Buffer): void {
  if (reader.skip === undefined || decoded.length <= READ_FIRST_BYTES + READ_LAST_BYTES) {
    for (let at = 0; at < decoded.length; at += DECODED_PIECE_BYTES)
      reader.data(decoded.subarray(at, at + DECODED_PIECE_BYTES));
    return;
  }
  reader.data(decoded.subarray(0, READ_FIRST_BYTES));
  const last = decoded.subarray(-READ_LAST_BYTES);
  // The last bytes start inside of an event, which may be the last one.
  const cut = createLargeEvent();
  const end = cut.push(last);
  const tail = end < 0 ? NO_BYTES : last.subarray(end);
  reader.skip(decoded.length - READ_FIRST_BYTES - tail.length);
  const usage = cut.usage();
  if (usage !== undefined) reader.data(Buffer.from(`data: ${usage}\n\n`));
  if (tail.length > 0) reader.data(tail);
}

interface UsageReport {
  readonly usage: Usage | undefined;
  readonly responseModel: string | undefined;
  readonly uncountedTokens: number;
}

/** Adds up the events of a stream. Tokens of chunks that were not read are extrapolated. */
function createEventMeter() {
  let usage: Members | undefined;
  let model: string | undefined;
  let bytes = 0;
  let bytesRead = 0;
  let tokensRead = 0;
  /** True if the last usage is from Anthropic's `message_start`, which does not count the output that follows. */
  let isFirstWord = false;
  return {
    bytes(size: number, isRead: boolean): void {
      bytes += size;
      if (isRead) bytesRead += size;
    },
    /** Returns true if the event's usage counts output. */
    event(data: string): boolean {
      const event = readMembers(EVENT, data) ?? (isTooComplex(data) ? usageAtEnd(data) : undefined);
      if (event === undefined) return false;
      model ??= findModel(event);
      const counted = findUsage(event);
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
      const text = findOutputText(event);
      if (text !== "") tokensRead += estimateTextTokens(Buffer.from(text));
      return false;
    },
    knowsModel(): boolean {
      return model !== undefined;
    },
    nameIn(data: string): void {
      const event = model === undefined ? readMembers(EVENT, data) : undefined;
      if (event !== undefined) model = findModel(event);
    },
    knowsAll(): boolean {
      return usage !== undefined && !isFirstWord && model !== undefined;
    },
    finish(complete: boolean): UsageReport {
      const countsAll = complete && usage !== undefined && !isFirstWord;
      // If nothing was read since the last usage, there are no bytes to extrapolate from.
      const uncounted = bytesRead === 0 ? tokensRead : Math.ceil((tokensRead * bytes) / bytesRead);
      return { usage: readUsage(usage), responseModel: model, uncountedTokens: countsAll ? 0 : uncounted };
    },
  };
}

/** Some streams count only the input in their first chunks, so the text of those chunks is not covered. */
function countsOutput(usage: Members): boolean {
  const { candidatesTokenCount, output_tokens, completion_tokens, outputTokens, outputTokenCount } = usage;
  return [candidatesTokenCount, output_tokens, completion_tokens, outputTokens, outputTokenCount].some(
    (count) => typeof count === "number",
  );
}

interface LargeEvent {
  /** Returns the offset in `chunk` after the blank line that ends the event, or -1. */
  push(chunk: Buffer): number;
  /** Returns a JSON event that holds only the usage, or undefined if none is found. */
  usage(): string | undefined;
}

const TAIL_BYTES = 16 * 1024;

function createLargeEvent(): LargeEvent {
  let tail = Buffer.alloc(0);
  return {
    push(chunk) {
      const before = tail.length;
      const bytes = Buffer.concat([tail, chunk]);
      // The blank line may start in the previous chunk.
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

function usageAtEnd(data: string): Members | undefined {
  return usageIn(Buffer.from(data.slice(-TAIL_BYTES)));
}

function usageIn(tail: Buffer): Members | undefined {
  const at = tail.lastIndexOf(USAGE);
  if (at < 0) return undefined;
  let start = at + USAGE.length;
  while (tail[start] === SPACE) start += 1;
  const end = endOfObject(tail, start);
  if (end < 0) return undefined;
  const usage = tryReadJson(USAGE_VALUE, tail.subarray(start, end));
  return isMembers(usage) && readUsage(usage) !== undefined ? { usage } : undefined;
}

interface QuickUsage {
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
/** Bounds the distance of the usage from the end, and of the model from the start. */
const MAX_LOOKED_AT = 1024;

export function quickUsage(bytes: Buffer): QuickUsage | undefined {
  const at = bytes.lastIndexOf(USAGE);
  if (at < 0 || bytes.length - at > MAX_LOOKED_AT || bytes[0] !== OPEN_BRACE) return undefined;
  let start = at + USAGE.length;
  while (bytes[start] === SPACE) start += 1;
  const end = endOfObject(bytes, start);
  if (end < 0 || !closesOutermost(bytes, end)) return undefined;
  const model = outermostModel(bytes, at);
  if (model === false) return undefined;
  const usage = tryReadJson(USAGE_VALUE, bytes.subarray(start, end));
  return isMembers(usage) ? { usage, model } : undefined;
}

/** Returns the offset after the object at `start`, or -1. Braces inside strings count too. */
function endOfObject(bytes: Buffer, start: number): number {
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

/** Returns undefined if there is no model, and false if the response must be parsed. */
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
