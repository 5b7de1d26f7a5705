/**
 * Estimates token counts without a tokenizer, because hostile text can block a byte-pair tokenizer for seconds, and
 * reads the maximum output of a request in any dialect. Long text is sampled.
 */
import { isUtf8 } from "node:buffer";
import { peerInput } from "../../base/peer-inputs.ts";
import { finish, type Steps } from "../../base/sliced-work.ts";
import type { GatewayRequest } from "../../core/exchange.ts";
import { JsonScanner, jsonKeysOfAnyCase } from "../../json/json-scanner.ts";
import { tryReadJson } from "../../json/read-json.ts";
import { endOfString } from "../../json/syntax.ts";

const SAMPLED_BYTES = 1536;
const PIECE_BYTES = 96;

type Kind = "sign" | "lower" | "upper" | "digit" | "blank" | "break" | "other";
const KINDS: readonly Kind[] = ["sign", "lower", "upper", "digit", "blank", "break", "other"];

/**
 * The cost of an ASCII byte in tokens depends on its kind and on the kind of the byte before it. `begin` applies unless
 * `after` has an entry for the kind of that byte.
 */
const COSTS: Readonly<Record<Kind, { readonly begin: number; readonly after?: Partial<Record<Kind, number>> }>> = {
  // The first letter has the cost of the word. Later letters have the probability that the word is split.
  lower: { begin: 0.8, after: { lower: 0.065, upper: 0.06, other: 0.35 } },
  upper: { begin: 0.85, after: { lower: 0.75, upper: 0.24 } },
  digit: { begin: 0.85, after: { digit: 0.28 } },
  sign: { begin: 0.82, after: { sign: 0.46 } },
  // Line breaks merge with the preceding sign, and indentation merges with the line break.
  break: { begin: 0.7, after: { sign: 0.15, break: 0 } },
  blank: { begin: 0, after: { blank: 0.06 } },
  other: { begin: 0 },
};

/**
 * The tokens per character were measured with the o200k vocabulary and include a margin. `from` and `to` bound the
 * first UTF-8 byte of the character.
 */
const SCRIPTS: readonly { readonly from: number; readonly to: number; readonly tokens: number }[] = [
  { from: 0xc2, to: 0xca, tokens: 0.5 }, // Latin with accents
  { from: 0xcb, to: 0xcf, tokens: 0.4 }, // Greek
  { from: 0xd0, to: 0xd4, tokens: 0.28 }, // Cyrillic
  { from: 0xd5, to: 0xdf, tokens: 0.38 }, // Hebrew, Arabic
  { from: 0xe0, to: 0xe1, tokens: 0.4 }, // Indic, Thai
  { from: 0xe2, to: 0xe2, tokens: 0.8 }, // typographic characters
  { from: 0xe3, to: 0xe3, tokens: 0.82 }, // kana and CJK punctuation
  { from: 0xe4, to: 0xe9, tokens: 0.86 }, // CJK
  { from: 0xea, to: 0xed, tokens: 0.82 }, // Hangul
  { from: 0xee, to: 0xef, tokens: 0.7 }, // full-width forms
  { from: 0xf0, to: 0xf4, tokens: 1.5 }, // emoji and rare characters
];

/** Holds the kind of each byte, shifted to the high bits of an index into `COST`. */
const ROW_OF = Uint16Array.from({ length: 256 }, (_, byte) => KINDS.indexOf(byteKind(byte)) << 8);
/**
 * The index consists of the kind of the previous byte (high bits) and the byte (low 8 bits). The unit is a thousandth
 * of a token, because adding integers is faster than adding fractions.
 */
const COST = Int32Array.from({ length: KINDS.length * 256 }, (_, index) =>
  Math.round(byteCost(KINDS[index >> 8] as Kind, index & 255) * 1000),
);
const START = KINDS.indexOf("blank") << 8;

const BACKSLASH = 92;
/** Maps the letter after a backslash to the byte it represents. Other escapes except `\u` count as a sign. */
const ESCAPED: Readonly<Record<number, number>> = { 110: 10, 114: 13, 116: 9 };
const SIGN = 34;
const LETTER_U = 117;

export function estimateTextTokens(bytes: Uint8Array, start = 0, end = bytes.length): number {
  return estimate(bytes, start, end, false, SAMPLED_BYTES);
}

/** `start` and `end` are the offsets between the quotes of a JSON string. At most `sampledBytes` bytes are sampled. */
export function estimateJsonTextTokens(
  bytes: Buffer,
  start: number,
  end: number,
  sampledBytes = SAMPLED_BYTES,
): number {
  // Most text has no escapes, and the loop without escape handling is faster.
  return estimate(bytes, start, end, bytes.subarray(start, end).includes(BACKSLASH), sampledBytes);
}

function estimate(bytes: Uint8Array, start: number, end: number, hasEscapes: boolean, sampledBytes: number): number {
  const length = end - start;
  const add = hasEscapes ? addJsonCosts : addCosts;
  if (length <= sampledBytes) return Math.ceil(add(bytes, start, end, START) / 1000);
  const pieces = Math.max(1, Math.floor(sampledBytes / PIECE_BYTES));
  const size = Math.min(PIECE_BYTES, sampledBytes);
  // A single sample starts at a pseudorandom offset, so that similar strings are not all sampled at the same offset.
  const stride = pieces === 1 ? 0 : Math.floor((length - size) / (pieces - 1));
  const first = pieces === 1 ? start + ((Math.imul(start, 0x9e3779b1) >>> 0) % (length - size)) : start;
  let thousandths = 0;
  for (let piece = 0; piece < pieces; piece++) {
    const from = first + piece * stride;
    // A sample that starts inside a word does not include the cost of a new word.
    const before = from === start ? START : (ROW_OF[bytes[from - 1] as number] as number);
    thousandths += add(bytes, from, from + size, before);
  }
  return Math.ceil((thousandths * length) / (pieces * size * 1000));
}

function addCosts(bytes: Uint8Array, start: number, end: number, before: number): number {
  let thousandths = 0;
  let row = before;
  for (let i = start; i < end; i++) {
    const byte = bytes[i] as number;
    thousandths = (thousandths + (COST[row | byte] as number)) | 0;
    row = ROW_OF[byte] as number;
  }
  return thousandths;
}

function addJsonCosts(bytes: Uint8Array, start: number, end: number, before: number): number {
  let thousandths = 0;
  let row = before;
  for (let i = start; i < end; i++) {
    let byte = bytes[i] as number;
    if (byte === BACKSLASH && i + 1 < end) {
      i += 1;
      const letter = bytes[i] as number;
      if (letter === LETTER_U) {
        byte = leadByte(bytes, i + 1);
        i += 4;
      } else byte = ESCAPED[letter] ?? SIGN;
    }
    thousandths = (thousandths + (COST[row | byte] as number)) | 0;
    row = ROW_OF[byte] as number;
  }
  return thousandths;
}

/** Returns the first UTF-8 byte of the character after `\u`. */
function leadByte(bytes: Uint8Array, at: number): number {
  let code = 0;
  for (let i = at; i < at + 4; i++) code = (code << 4) | hexValue(bytes[i] ?? 0);
  if (code < 0x80) return code;
  if (code < 0x800) return 0xc0 | (code >> 6);
  // The high surrogate has the cost of the pair.
  if (code >= 0xd800 && code < 0xdc00) return 0xf0;
  if (code >= 0xdc00 && code < 0xe000) return 0x80;
  return 0xe0 | (code >> 12);
}

function hexValue(byte: number): number {
  return byte <= 57 ? byte & 15 : ((byte & 15) + 9) & 15;
}

function byteCost(before: Kind, byte: number): number {
  if (byte >= 0x80) return SCRIPTS.find(({ from, to }) => byte >= from && byte <= to)?.tokens ?? 0;
  const { begin, after } = COSTS[byteKind(byte)];
  return after?.[before] ?? begin;
}

function byteKind(byte: number): Kind {
  if (byte >= 0x80) return "other";
  if (byte >= 97 && byte <= 122) return "lower";
  if (byte >= 65 && byte <= 90) return "upper";
  if (byte >= 48 && byte <= 57) return "digit";
  if (byte === 32 || byte === 9) return "blank";
  if (byte === 10 || byte === 13) return "break";
  return "sign";
}

/** Marks top-level members that hold input. */
const PROMPT = 1;
/** Marks top-level members whose nested property names count as input too. */
const DEFINITIONS = 2;
/** Marks protocol fields that are not part of the prompt. */
const SILENT = 4;
/** Marks fields that hold an image or a file, or its URL or ID. */
const MEDIA = 8;
/** Marks fields that hold an image or a file only inside a `HOLDER`, because a tool argument may have the same name. */
const CONTENT = 16;
const HOLDER = 32;
const ROLE = 64;

const NAMES: readonly (readonly [flag: number, names: string])[] = [
  [
    PROMPT,
    "messages input prompt system instructions contents systemInstruction system_instruction content requests query documents inputText inputs",
  ],
  [DEFINITIONS, "tools functions toolConfig response_format text output_config"],
  [
    SILENT,
    "role type id tool_call_id call_id tool_use_id toolUseId mime_type mimeType media_type format detail signature thoughtSignature thought_signature encrypted_content ttl",
  ],
  [MEDIA, "image_url file_data file_id file_uri fileUri"],
  [CONTENT, "data bytes url uri"],
  [HOLDER, "image_url source inlineData inline_data fileData file file_data input_audio audio s3Location video_url"],
  [ROLE, "role"],
];

interface Entry {
  readonly name: Uint8Array;
  readonly flags: number;
}

const SLOTS = 512;
const LONGEST = 32;
const TABLE: readonly (readonly Entry[] | undefined)[] = buildTable();

/** `start` is the offset after the opening quote of the key, and `end` is the offset of the closing quote. */
function flagsOfKey(bytes: Uint8Array, start: number, end: number): number {
  const length = end - start;
  if (length === 0 || length > LONGEST) return 0;
  const entries = TABLE[hashSlot(length, bytes[start] as number, bytes[end - 1] as number)];
  if (entries === undefined) return 0;
  for (const { name, flags } of entries) {
    let same = name.length === length;
    for (let i = 0; same && i < length; i++) same = name[i] === bytes[start + i];
    if (same) return flags;
  }
  return 0;
}

function hashSlot(length: number, first: number, last: number): number {
  return (length * 37 + first * 5 + last) % SLOTS;
}

function buildTable(): (readonly Entry[] | undefined)[] {
  const flagsByName = new Map<string, number>();
  for (const [flag, names] of NAMES)
    for (const name of names.split(" ")) flagsByName.set(name, (flagsByName.get(name) ?? 0) | flag);
  const table = new Array<Entry[] | undefined>(SLOTS).fill(undefined);
  for (const [text, flags] of flagsByName) {
    const name = Buffer.from(text);
    const slot = hashSlot(name.length, name[0] as number, name[name.length - 1] as number);
    table[slot] = [...(table[slot] ?? []), { name, flags }];
  }
  return table;
}

const MESSAGE_TOKENS = 4;
/** An image of ordinary size costs about this many tokens. */
const MEDIA_TOKENS = 1000;
const BASE_TOKENS = 3;
/** A property name in a definition costs this many tokens, plus one per 16 bytes. */
const KEY_TOKENS = 2;
/**
 * After this many bytes, a twelfth of each string is sampled, but at least `SHORT_TEXT_BYTES` and at most
 * `SAMPLED_BYTES`.
 */
const READ_WHOLE_BYTES = 1024;
const SHORT_TEXT_BYTES = 64;
const REMEMBERED_DEPTH = 32;

const STEP_BYTES = 64 * 1024;

const QUOTE = 34;
const COLON = 58;
const OPEN_BRACKET = 91;
const CLOSE_BRACKET = 93;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;

export function estimateRequestTokens(bytes: Buffer): number {
  return finish(estimateSteps(bytes));
}

export function* estimateSteps(bytes: Buffer): Steps<number> {
  const reading = {
    at: 0,
    tokens: BASE_TOKENS,
    depth: 0,
    top: 0,
    key: 0,
    readBytes: 0,
    names: new Uint8Array(REMEMBERED_DEPTH),
  };
  for (;;) {
    readOn(bytes, reading, reading.at + STEP_BYTES);
    if (reading.at >= bytes.length) return Math.ceil(reading.tokens);
    yield;
  }
}

interface Reading {
  at: number;
  tokens: number;
  depth: number;
  top: number;
  key: number;
  readBytes: number;
  readonly names: Uint8Array;
}

function readOn(bytes: Buffer, reading: Reading, until: number): void {
  const { names } = reading;
  let { at: i, tokens, depth, top, key, readBytes } = reading;
  const end = Math.min(until, bytes.length);
  while (i < end) {
    const byte = bytes[i] as number;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      depth += 1;
      i += 1;
      continue;
    }
    if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth -= 1;
    if (byte !== QUOTE) {
      i += 1;
      continue;
    }
    const start = i + 1;
    const quote = endOfString(bytes, start);
    i = skipBlanks(bytes, quote + 1);
    if (bytes[i] === COLON) {
      key = flagsOfKey(bytes, start, quote);
      if (depth < REMEMBERED_DEPTH) names[depth] = key;
      // A top-level key with escapes is not recognized, so its value counts as prompt.
      if (depth === 1) top = key === 0 && hasEscape(bytes, start, quote) ? PROMPT : key;
      else if ((top & DEFINITIONS) !== 0) tokens += KEY_TOKENS + ((quote - start) >> 4);
      if ((key & ROLE) !== 0 && depth > 1) tokens += MESSAGE_TOKENS;
    } else if ((top & (PROMPT | DEFINITIONS)) !== 0 && (key & SILENT) === 0) {
      const isMedia = (key & MEDIA) !== 0 || ((key & CONTENT) !== 0 && ((names[depth - 1] ?? 0) & HOLDER) !== 0);
      if (isMedia) tokens += MEDIA_TOKENS;
      else {
        const share =
          readBytes < READ_WHOLE_BYTES ? SAMPLED_BYTES : Math.max(SHORT_TEXT_BYTES, Math.floor((quote - start) / 12));
        tokens += estimateJsonTextTokens(bytes, start, quote, Math.min(share, SAMPLED_BYTES));
        readBytes += quote - start;
      }
    }
  }
  reading.at = i;
  reading.tokens = tokens;
  reading.depth = depth;
  reading.top = top;
  reading.key = key;
  reading.readBytes = readBytes;
}

function hasEscape(bytes: Buffer, start: number, end: number): boolean {
  for (let i = start; i < end; i++) if (bytes[i] === BACKSLASH) return true;
  return false;
}

function skipBlanks(bytes: Buffer, from: number): number {
  let i = from;
  while (i < bytes.length && (bytes[i] as number) <= 32) i += 1;
  return i;
}

const READ_BYTES = 64 * 1024;
const BINARY_TYPE = /^(?:image|audio|video|font)\//i;
/** Strings of at least this length that look like base64 count as media. */
const ENCODED_BYTES = 512;
const BASE64 = /^[A-Za-z0-9+/=_-]+$/;

/** Keeps the first bytes of a response and extrapolates the token estimate to its full size. */
export class ResponseSample {
  readonly #contentType: string;
  #chunks: Buffer[] = [];
  #kept = 0;
  #bytes = 0;

  constructor(contentType: string) {
    this.#contentType = contentType;
  }

  add(chunk: Buffer): void {
    this.#bytes += chunk.length;
    const room = READ_BYTES - this.#kept;
    if (room <= 0) return;
    const part = chunk.subarray(0, room);
    this.#chunks.push(part);
    this.#kept += part.length;
  }

  tokens(): number {
    if (this.#kept === 0 || BINARY_TYPE.test(this.#contentType)) return 0;
    const read = this.#chunks.length === 1 ? (this.#chunks[0] as Buffer) : Buffer.concat(this.#chunks);
    const scale = this.#bytes / this.#kept;
    const start = skipBlanks(read, 0);
    if (read[start] === OPEN_BRACE || read[start] === OPEN_BRACKET || read[start] === QUOTE)
      return jsonTokens(read, start, scale);
    return isText(read) ? Math.ceil(estimateTextTokens(read) * scale) : 0;
  }
}

function jsonTokens(bytes: Buffer, from: number, scale: number): number {
  let text = 0;
  let media = 0;
  let key = 0;
  let endsInMedia = false;
  for (let i = from; i < bytes.length; ) {
    if (bytes[i] !== QUOTE) {
      i += 1;
      continue;
    }
    const start = i + 1;
    const end = Math.min(endOfString(bytes, start), bytes.length);
    i = skipBlanks(bytes, end + 1);
    endsInMedia = false;
    if (bytes[i] === COLON) key = flagsOfKey(bytes, start, end);
    else if ((key & SILENT) === 0) {
      if (isEncoded(bytes, start, end)) {
        media += MEDIA_TOKENS;
        endsInMedia = end === bytes.length;
      } else text += estimateJsonTextTokens(bytes, start, end);
    }
  }
  // If the sample ends inside encoded media, the remaining bytes are assumed to be media too.
  return Math.ceil(endsInMedia ? text : text * scale) + media;
}

function isEncoded(bytes: Buffer, start: number, end: number): boolean {
  return end - start >= ENCODED_BYTES && BASE64.test(bytes.toString("latin1", start, start + ENCODED_BYTES));
}

/** The sample may end in the middle of a character, so up to three trailing bytes are ignored. */
function isText(bytes: Buffer): boolean {
  for (let cut = 0; cut < 4 && cut < bytes.length; cut++)
    if (isUtf8(bytes.subarray(0, bytes.length - cut))) return !bytes.includes(0);
  return false;
}

const TEXT_BYTES_PER_TOKEN = 4;
const MEDIA_BYTES_PER_TOKEN = 1024;
const ENCODED_BYTES_PER_TOKEN = 1;
const MEDIA_TYPE = /^\s*(?:multipart\/form-data|image\/|audio\/|video\/)/i;

export function bytesPerToken({ headers }: Pick<GatewayRequest, "headers">): number {
  const coding = headers.get("content-encoding")?.toLowerCase() ?? "identity";
  if (coding !== "identity") return ENCODED_BYTES_PER_TOKEN;
  return MEDIA_TYPE.test(headers.get("content-type") ?? "") ? MEDIA_BYTES_PER_TOKEN : TEXT_BYTES_PER_TOKEN;
}

const BODY = peerInput("client/charged-body");
const OPTION = peerInput("client/llm-option");

const MAXIMA: ReadonlySet<string> = new Set([
  ...["max_tokens", "max_completion_tokens", "max_output_tokens", "maxTokens"],
  ...["max_tokens_to_sample", "max_new_tokens", "max_gen_len"],
  ...["generationConfig.maxOutputTokens", "generation_config.max_output_tokens"],
  ...["inferenceConfig.maxTokens", "inferenceConfig.max_new_tokens", "textGenerationConfig.maxTokenCount"],
]);
const COUNTS: ReadonlySet<string> = new Set(["n", "best_of", "generationConfig.candidateCount"]);
const KEYS = jsonKeysOfAnyCase(...MAXIMA, ...COUNTS);
/** Each name of a maximum contains `max`, unless escapes are used. Most small requests have neither. */
const COULD_NAME_MAXIMUM = /max|\\/i;
const MAX_NUMBER_BYTES = 32;
/** Larger values are clamped. */
const MAX_OUTPUT_TOKENS = 1_000_000_000;

export function maxOutputTokens(bytes: Buffer): number | undefined {
  return finish(maxOutputTokensSteps(bytes));
}

export function* maxOutputTokensSteps(bytes: Buffer): Steps<number | undefined> {
  if (bytes.length <= STEP_BYTES && !COULD_NAME_MAXIMUM.test(bytes.toString("latin1"))) return undefined;
  let maximum: number | undefined;
  let choices = 1;
  const scanner = new JsonScanner({
    keys: KEYS,
    input: BODY,
    maxValueBytes: MAX_NUMBER_BYTES,
    value(key, _span, valueBytes) {
      const count = parseCount(tryReadJson(OPTION, valueBytes));
      if (count === undefined) return;
      if (COUNTS.has(key)) choices = Math.max(choices, count);
      else maximum = Math.max(maximum ?? 0, count);
    },
  });
  for (let from = 0; from < bytes.length; from += STEP_BYTES) {
    if (from > 0) yield;
    scanner.push(bytes.subarray(from, from + STEP_BYTES));
  }
  return maximum === undefined ? undefined : Math.min(MAX_OUTPUT_TOKENS, maximum * choices);
}

/** Some servers accept numbers as strings. Negative values are ignored. */
function parseCount(value: unknown): number | undefined {
  const count = typeof value === "string" && value !== "" ? Number(value) : value;
  return typeof count === "number" && count >= 0 ? Math.ceil(Math.min(count, MAX_OUTPUT_TOKENS)) : undefined;
}
