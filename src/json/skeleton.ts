/**
 * Parses a request into a tree in which short placeholders replace encoded images and files. Writing the tree restores
 * the data. Long texts are strings of the tree, but are written from the bytes of the request where they are unchanged,
 * because encoding many megabytes would block the event loop.
 */

import { InputError, type PeerInput } from "../base/peer-inputs.ts";
import { finish, type Steps } from "../base/sliced-work.ts";
import { type Members, putMember } from "./json.ts";
import { readMembersInSteps, textInSteps, textJsonInSteps } from "./parse-in-steps.ts";
import { BACKSLASH, COLON, COMMA, endOfString, isSpace, QUOTE } from "./syntax.ts";

export interface Skeleton {
  readonly value: Members;
  /** Throws an `InputError` if too many long texts were changed. */
  write(value: Members): readonly Buffer[];
  writeInSteps(value: Members): Steps<readonly Buffer[]>;
  /**
   * Replaces the placeholders in a string of the tree with the encoded data. `maxBytes` truncates each part of the
   * string and each placeholder's data.
   */
  resolve(text: string, maxBytes?: number): string;
}

const MIN_BLOB_BYTES = 16 * 1024;
const MIN_TEXT_BYTES = 1024;
/** Changed texts of this length are encoded in steps. */
const MIN_CHANGED_CHARS = 512;
const SAMPLE_BYTES = 64;
const STEP_BYTES = 32 * 1024;
/** Bounds the changed texts that are encoded in one step. */
const MAX_CHANGED_CHARS = 2 * 1024 * 1024;
/** Smaller pieces of a body are joined, up to this size. */
const PIECE_BYTES = 64 * 1024;

/** `tooLarge` completes a message that begins with "a request". */
export type NoSkeleton = { readonly tooLarge: string } | "not JSON";

const NO_MEMBERS: ReadonlySet<string> = new Set();

/** `nonce` must be unknown to the client, so that the client cannot forge a placeholder. */
export function readSkeleton(
  input: PeerInput<"JSON">,
  bytes: Buffer,
  nonce: string,
  jsonMembers: ReadonlySet<string> = NO_MEMBERS,
): Skeleton | NoSkeleton {
  return finish(skeletonSteps(input, bytes, nonce, jsonMembers));
}

/**
 * The limit of bytes does not apply to images, files, and long texts, except for texts in `jsonMembers` below the top
 * level, which callers parse or encode as JSON.
 */
export function* skeletonSteps(
  input: PeerInput<"JSON">,
  bytes: Buffer,
  nonce: string,
  jsonMembers: ReadonlySet<string> = NO_MEMBERS,
): Steps<Skeleton | NoSkeleton> {
  const { maxBytes: maxTreeBytes } = input;
  const tooLarge = { tooLarge: `of more than ${maxTreeBytes} bytes besides images and long texts` };
  const pieces: Buffer[] = [];
  const blobs: Buffer[] = [];
  const texts: Buffer[] = [];
  let from = 0;
  let size = 0;
  let pausedAt = 0;
  const cut = (start: number, end: number, mark: string): void => {
    pieces.push(bytes.subarray(from, start), Buffer.from(mark));
    size += start - from;
    from = end;
  };
  for (let quote = bytes.indexOf(QUOTE); quote >= 0; ) {
    const start = quote + 1;
    const end = endOfString(bytes, start);
    const dataStart = end - start >= MIN_BLOB_BYTES ? startOfBlob(bytes, start, end) : undefined;
    if (dataStart !== undefined) {
      cut(dataStart, end, markOf("blob", nonce, blobs.length));
      blobs.push(bytes.subarray(dataStart, end));
    } else if (end - start >= MIN_TEXT_BYTES && !isName(bytes, end)) {
      cut(start, end, markOf("text", nonce, texts.length));
      texts.push(bytes.subarray(start, end));
    }
    if (size + end - from > maxTreeBytes) return tooLarge;
    quote = bytes.indexOf(QUOTE, end + 1);
    if (end - pausedAt > STEP_BYTES) {
      pausedAt = end;
      yield;
    }
  }
  size += bytes.length - from;
  if (size > maxTreeBytes) return tooLarge;
  pieces.push(bytes.subarray(from));
  const tree = pieces.length === 1 ? bytes : Buffer.concat(pieces);
  let value: Members | undefined;
  const long = new LongTexts(nonce, texts, jsonMembers);
  try {
    value = yield* readMembersInSteps(input, tree);
    if (value !== undefined && texts.length > 0) yield* long.fill(value, 0, false);
  } catch (error) {
    if (error instanceof SyntaxError) return "not JSON";
    if (!(error instanceof InputError)) throw error;
    return error.problem === "items" ? { tooLarge: `of more than ${input.maxItems} values and names` } : tooLarge;
  }
  if (value === undefined) return "not JSON";
  if (size + long.jsonBytes > maxTreeBytes) return tooLarge;
  const data = blobs.map((blob) => [blob]);
  function* writeInSteps(changed: Members, maxChars = Number.POSITIVE_INFINITY): Steps<readonly Buffer[]> {
    if (texts.length === 0) return restore(JSON.stringify(changed), nonce, data);
    const { json, written } = long.split(changed, blobs.length);
    const all: (readonly Buffer[])[] = [...data];
    let chars = 0;
    for (const text of written) {
      const encoded = long.encoded(text);
      if (encoded === undefined) chars += text.length;
      if (chars > maxChars) throw InputError.tooLarge(input);
      all.push(encoded === undefined ? restore(yield* textJsonInSteps(text), nonce, data) : [encoded]);
    }
    return joined(restore(json, nonce, all));
  }
  return {
    value,
    write: (changed) => finish(writeInSteps(changed, MAX_CHANGED_CHARS)),
    writeInSteps: (changed) => writeInSteps(changed),
    resolve(text, maxBytes) {
      if (blobs.length === 0 || !text.includes("@blob-")) return text;
      const shown = (piece: Buffer): string => piece.toString("utf8", 0, maxBytes ?? piece.length);
      return restore(text, nonce, data).map(shown).join("");
    },
  };
}

/** The strings of a tree that are too long to be decoded and encoded with it. */
class LongTexts {
  readonly #nonce: string;
  readonly #encoded: readonly Buffer[];
  readonly #jsonMembers: ReadonlySet<string>;
  /** The bytes of each decoded text, between the quotes. */
  readonly #bytes = new Map<string, Buffer>();
  jsonBytes = 0;

  constructor(nonce: string, encoded: readonly Buffer[], jsonMembers: ReadonlySet<string>) {
    this.#nonce = nonce;
    this.#encoded = encoded;
    this.#jsonMembers = jsonMembers;
  }

  /** Replaces the marks in the value. Throws a SyntaxError for a text that is not valid JSON. */
  *fill(holder: Members | unknown[], depth: number, isJson: boolean): Steps<void> {
    for (const name of Object.keys(holder)) {
      const item = (holder as Record<string, unknown>)[name];
      const isJsonItem = isJson || (depth > 0 && this.#jsonMembers.has(name));
      if (typeof item === "object" && item !== null) yield* this.fill(item as Members, depth + 1, isJsonItem);
      else if (typeof item === "string" && item.startsWith(`@text-${this.#nonce}-`)) {
        const encoded = this.#encoded[Number(item.slice(item.lastIndexOf("-") + 1, -1))];
        if (encoded === undefined) continue;
        const text = yield* textInSteps(encoded);
        this.#bytes.set(text, encoded);
        if (isJsonItem) this.jsonBytes += encoded.length;
        putMember(holder as Record<string, unknown>, name, text);
      }
    }
  }

  /** Returns the JSON of the value, in which marks that are numbered from `first` on replace long texts, and these texts. */
  split(value: Members, first: number): { readonly json: string; readonly written: readonly string[] } {
    const written: string[] = [];
    const json = JSON.stringify(value, (_name, item: unknown) => {
      if (typeof item !== "string" || item.length < MIN_CHANGED_CHARS) return item;
      written.push(item);
      return markOf("blob", this.#nonce, first + written.length - 1);
    });
    return { json, written };
  }

  /** Returns the bytes of a text of the request, between the quotes. */
  encoded(text: string): Buffer | undefined {
    return this.#bytes.get(text);
  }
}

function isName(bytes: Buffer, end: number): boolean {
  let at = end + 1;
  while (at < bytes.length && isSpace(bytes[at])) at += 1;
  return bytes[at] === COLON;
}

function restore(text: string, nonce: string, blobs: readonly (readonly Buffer[])[]): readonly Buffer[] {
  if (blobs.length === 0) return [Buffer.from(text)];
  const pieces: Buffer[] = [];
  const mark = `@blob-${nonce}-`;
  let copied = 0;
  for (let at = text.indexOf(mark); at >= 0; at = text.indexOf(mark, at + mark.length)) {
    const end = text.indexOf("@", at + mark.length);
    const number = end < 0 ? "" : text.slice(at + mark.length, end);
    if (!/^\d+$/.test(number)) continue;
    if (at > copied) pieces.push(Buffer.from(text.slice(copied, at)));
    for (const piece of blobs[Number(number)] ?? []) if (piece.length > 0) pieces.push(piece);
    copied = end + 1;
  }
  if (copied < text.length) pieces.push(Buffer.from(text.slice(copied)));
  return pieces;
}

/** Joins small pieces, because each is a write to the provider's connection. */
function joined(pieces: readonly Buffer[]): readonly Buffer[] {
  const result: Buffer[] = [];
  let group: Buffer[] = [];
  let bytes = 0;
  const flush = (): void => {
    if (group.length > 0) result.push(group.length === 1 ? (group[0] as Buffer) : Buffer.concat(group, bytes));
    group = [];
    bytes = 0;
  };
  for (const piece of pieces) {
    if (bytes + piece.length > PIECE_BYTES) flush();
    group.push(piece);
    bytes += piece.length;
  }
  flush();
  return result;
}

function markOf(kind: "blob" | "text", nonce: string, index: number): string {
  return `@${kind}-${nonce}-${index}@`;
}

/** Returns the offset at which the base64 data of a string or data URL starts, or undefined if there is none. */
function startOfBlob(bytes: Buffer, start: number, end: number): number | undefined {
  if (bytes.toString("latin1", start, start + 5) === "data:") {
    const comma = bytes.indexOf(COMMA, start);
    return comma > 0 && comma - start < 256 && isBase64(bytes, comma + 1, end) ? comma + 1 : undefined;
  }
  return isBase64(bytes, start, end) ? start : undefined;
}

/**
 * Matches only samples, because prose of that size has spaces throughout. A string with a backslash is rejected,
 * because it has JSON escapes.
 */
function isBase64(bytes: Buffer, start: number, end: number): boolean {
  const middle = start + ((end - start) >> 1);
  const samples = [start, middle, end - SAMPLE_BYTES].map((at) => bytes.toString("latin1", at, at + SAMPLE_BYTES));
  return (
    samples.every((sample) => /^[A-Za-z0-9+/_-]+={0,2}$/.test(sample)) &&
    bytes.subarray(start, end).indexOf(BACKSLASH) < 0
  );
}
