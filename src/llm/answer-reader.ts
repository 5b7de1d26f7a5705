/**
 * Reads answers as they go by: JSON, server-sent events, AWS event streams, encoded or not. One event is held at a
 * time; what is too large to read is passed by.
 */
import { createSseParser } from "../lib/sse.ts";
import { createEventStreamReader } from "./aws-event-stream.ts";
import { decodeAnswer, isEncoded } from "./decode-answer.ts";
import { estimateTextTokens } from "./estimate.ts";
import { isMembers, type Members, parseMembers, parseValue } from "./json.ts";
import { JsonScanner, jsonKeys } from "./json-scanner.ts";
import { quickUsage } from "./quick-usage.ts";
import { bytesMayHoldUsage, endsEvent, modelOf, textOf, usageOf } from "./stream-event.ts";
import { mergeUsage, readUsage, type Usage } from "./usage.ts";

/** An event larger than this is passed on unread. */
const MAX_EVENT_BYTES = 2 * 1024 * 1024;
const MAX_VALUE_BYTES = 64 * 1024;
/** Encoded answers are decoded at their end, up to this many bytes. */
const MAX_ENCODED_BYTES = 4 * 1024 * 1024;
/** The first chunks are kept for their text, later ones by sample: reading each would cost a tenth of a stream. */
const CHUNKS_READ = 8;
const SAMPLE_EVERY = 16;
const MAX_SAMPLED_BYTES = 4 * 1024;
/** Of a JSON answer that broke off nobody knows what is text: syntax and text together make about this. */
const JSON_BYTES_PER_TOKEN = 5;
const PARSED_BYTES = 4 * 1024;
const NO_BYTES = Buffer.alloc(0);
const ANSWER_KEYS = jsonKeys("usage", "usageMetadata", "model", "modelVersion");

/** What an answer said of itself. */
export interface AnswerReport {
  /** What the provider said, if it said something. */
  readonly usage: Usage | undefined;
  readonly responseModel: string | undefined;
  /** Estimated tokens of the text that came after the last usage: all of it if there was none. */
  readonly uncountedTokens: number;
}

export interface AnswerReader {
  data(chunk: Buffer, mayHoldUsage?: boolean): void;
  /** `complete`: it ended as it should, so that the last usage said counts everything. */
  finish(complete: boolean): AnswerReport;
}

export function createAnswerReader(contentType: string | undefined, contentEncoding: string | undefined): AnswerReader {
  return isEncoded(contentEncoding) ? createEncodedReader(contentType, contentEncoding) : createReader(contentType);
}

function createReader(contentType = ""): AnswerReader {
  if (contentType.startsWith("text/event-stream")) return createSseReader();
  if (contentType.startsWith("application/vnd.amazon.eventstream")) return createAwsReader();
  return createJsonReader();
}

function createSseReader(): AnswerReader {
  const meter = createEventMeter();
  let readable = true;
  let atBoundary = true;
  let chunks = 0;
  /** Whole events whose text is read only if the stream turns out to have no usage. */
  let samples: Buffer[] = [];
  let sampledBytes = 0;
  const parser = createSseParser((event) => {
    if (meter.event(event.data)) {
      samples = [];
      sampledBytes = 0;
    }
  }, MAX_EVENT_BYTES);

  /** Whether a chunk of whole events without usage needs no reading now. */
  function putAside(chunk: Buffer): boolean {
    if (chunks > CHUNKS_READ && chunks % SAMPLE_EVERY !== 0) {
      meter.bytes(chunk.length, false);
      return true;
    }
    // Too much to keep is read at once instead.
    if (sampledBytes + chunk.length > MAX_SAMPLED_BYTES) return false;
    samples.push(chunk);
    sampledBytes += chunk.length;
    meter.bytes(chunk.length, true);
    return true;
  }

  return {
    data(chunk, mayHoldUsage) {
      if (!readable) return;
      const endsWhole = endsEvent(chunk);
      const isWhole = atBoundary && endsWhole;
      atBoundary = endsWhole;
      chunks += 1;
      if (isWhole && !(mayHoldUsage ?? bytesMayHoldUsage(chunk)) && putAside(chunk)) return;
      meter.bytes(chunk.length, true);
      try {
        parser.push(chunk);
      } catch {
        // An event beyond all measure: its bytes go on, its text is not counted.
        readable = false;
      }
    },
    finish(complete) {
      if (!complete || !meter.knowsAll) {
        const held = createSseParser((event) => void meter.event(event.data), MAX_EVENT_BYTES);
        for (const chunk of samples) held.push(chunk);
      }
      return meter.finish();
    },
  };
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
function awsEventText(payload: Buffer): string {
  const text = payload.toString("utf8");
  if (!text.startsWith('{"bytes"')) return text;
  const wrapped = parseMembers(text)?.bytes;
  return typeof wrapped === "string" ? Buffer.from(wrapped, "base64").toString("utf8") : text;
}

/** Adds up what events say; of the chunks that were not read it supposes what it saw in the others. */
function createEventMeter() {
  let usage: Members | undefined;
  let model: string | undefined;
  let bytes = 0;
  let bytesRead = 0;
  let tokensRead = 0;
  return {
    bytes(size: number, isRead: boolean): void {
      bytes += size;
      if (isRead) bytesRead += size;
    },
    /** True if the event counts all that was said before it. */
    event(data: string): boolean {
      const event = parseMembers(data);
      if (event === undefined) return false;
      model ??= modelOf(event);
      const counted = usageOf(event);
      if (counted !== undefined) usage = mergeUsage(usage, counted);
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
    get knowsAll(): boolean {
      return usage !== undefined && model !== undefined;
    },
    finish: (): AnswerReport => ({
      usage: readUsage(usage),
      responseModel: model,
      // A chunk that holds usage is whole: what follows in it was read.
      uncountedTokens: bytesRead === 0 ? tokensRead : Math.ceil((tokensRead * bytes) / bytesRead),
    }),
  };
}

/** The first chunks of some streams count only their input: what they say is not counted yet. */
function countsOutput(usage: Members): boolean {
  const { candidatesTokenCount, output_tokens, completion_tokens, outputTokens, outputTokenCount } = usage;
  return [candidatesTokenCount, output_tokens, completion_tokens, outputTokens, outputTokenCount].some(
    (count) => typeof count === "number",
  );
}

function createJsonReader(): AnswerReader {
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
      if (bytesSeen === 0) only = chunk;
      else scan(chunk);
      bytesSeen += chunk.length;
    },
    finish() {
      const quick = only && quickUsage(only);
      if (quick) return { usage: readUsage(quick.usage), responseModel: quick.model, uncountedTokens: 0 };
      const whole = only && only.length <= PARSED_BYTES ? parseMembers(only.toString("utf8")) : undefined;
      if (whole) return { usage: readUsage(usageOf(whole)), responseModel: modelOf(whole), uncountedTokens: 0 };
      scan(NO_BYTES);
      const isWhole = usage !== undefined || scanner?.complete === true;
      return {
        usage: readUsage(usage),
        responseModel: model,
        uncountedTokens: isWhole ? 0 : Math.ceil(bytesSeen / JSON_BYTES_PER_TOKEN),
      };
    },
  };
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
      const decoded = size <= MAX_ENCODED_BYTES ? decodeAnswer(Buffer.concat(chunks), contentEncoding) : undefined;
      if (decoded !== undefined) reader.data(decoded);
      return reader.finish(complete);
    },
  };
}
