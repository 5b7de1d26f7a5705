/**
 * Finds the values of a few keys in a JSON object (a `Buffer`, possibly in chunks) without parsing it, because parsing
 * a large body would block the event loop. The scanner checks structure (closed strings, the number of brackets, depth)
 * but not grammar.
 */

import type { PeerInput } from "../base/peer-inputs.ts";
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  decodeString,
  type Edit,
  endOfString,
  foldCase,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  SPACE,
  type Span,
} from "./syntax.ts";

const [TAB, LF, CR] = [9, 10, 13];
/** A byte order mark is allowed at the start, because most servers skip it. */
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];
/** Shorter strings are scanned by byte, because a native search has a higher fixed cost. */
const SHORT_STRING_BYTES = 96;

export interface JsonScannerOptions {
  readonly keys: JsonKeys;
  /** Called when a value is complete. `bytes` is undefined if the value is larger than `maxValueBytes`. */
  value(key: string, span: Span, bytes: Buffer | undefined): void;
  readonly maxValueBytes: number;
  /** Deeper nesting than its limit makes the scan invalid. */
  readonly input: PeerInput<"JSON">;
}

export class JsonScanner {
  /** Holds the offset after the opening brace, or -1 if the outermost value is not an object. */
  bodyStart = -1;
  complete = false;
  invalid: string | undefined = undefined;
  /** Holds the first key that matched only when case was ignored, as written in the input. */
  otherCase: string | undefined = undefined;
  /** Set if data other than white space follows the outermost value. */
  trailing = false;
  readonly #options: JsonScannerOptions;
  readonly #maxDepth: number;
  readonly #wanted: ReadonlySet<string>;
  readonly #parents: ReadonlySet<string>;
  readonly #mayBegin: Uint8Array;
  #offset = 0;
  #depth = 0;
  /** Keys are read at depth 1, or 2 inside a parent. An outermost array adds one level. */
  #keyDepth = 0;
  #rootDepth = 0;
  #parent = "";
  #expectKey = false;
  #inString = false;
  #stringIsKey = false;
  #escaped = false;
  #keyStart = -1;
  #keyParts: Buffer[] = [];
  #key: string | undefined = undefined;
  #afterColon = false;
  #lastSolid = -1;
  readonly #capture: JsonCapture;
  #stringBytes = 0;

  constructor(options: JsonScannerOptions) {
    this.#options = options;
    this.#maxDepth = options.input.maxDepth;
    this.#wanted = options.keys.wanted;
    this.#parents = options.keys.parents;
    this.#mayBegin = options.keys.mayBegin;
    this.#capture = new JsonCapture(options.maxValueBytes);
  }

  push(chunk: Buffer): void {
    const length = chunk.length;
    let i = 0;
    while (i < length && this.invalid === undefined) {
      if (this.#inString) {
        const end = this.#skipString(chunk, i);
        this.#stringBytes += end - i;
        i = end;
        continue;
      }
      if (this.#depth > this.#keyDepth && this.#keyDepth > 0) {
        i = this.#skipNested(chunk, i);
        continue;
      }
      const byte = chunk[i] as number;
      if (byte <= SPACE) {
        // Some servers treat other control characters as spaces, and NUL as half of a UTF-16 character.
        if (byte !== SPACE && byte !== LF && byte !== CR && byte !== TAB) this.invalid = "not plain text";
        i += 1;
        continue;
      }
      if (this.#rootDepth === 0 && byte !== OPEN_BRACE && byte !== OPEN_BRACKET) {
        if (byte !== BYTE_ORDER_MARK[this.#offset + i]) this.invalid = "not one JSON object";
        i += 1;
        continue;
      }
      if (this.complete) this.trailing = true;
      if (this.#afterColon) this.#beginValue(i);
      switch (byte) {
        case QUOTE:
          this.#inString = true;
          this.#stringIsKey = this.#expectKey && this.#depth === this.#keyDepth;
          if (this.#stringIsKey) this.#keyStart = i + 1;
          break;
        case OPEN_BRACE:
        case OPEN_BRACKET:
          this.#open(byte, i);
          break;
        case CLOSE_BRACE:
        case CLOSE_BRACKET:
          this.#close(chunk, i);
          break;
        case COLON:
          if (this.#depth === this.#keyDepth && this.#key !== undefined) this.#afterColon = true;
          break;
        case COMMA:
          if (this.#depth === this.#keyDepth) {
            this.#endValue(chunk);
            this.#expectKey = true;
          }
          break;
      }
      this.#lastSolid = this.#offset + i + 1;
      i += 1;
    }
    this.#keepPieces(chunk);
    this.#offset += length;
  }

  get syntaxBytes(): number {
    return this.#offset - this.#stringBytes;
  }

  /** The result is valid after the last chunk. */
  get wellFormed(): boolean {
    return this.complete && !this.trailing && this.invalid === undefined && !this.#inString;
  }

  /** Skips to the end of a nested value, in which keys do not matter. */
  #skipNested(chunk: Buffer, from: number): number {
    const { length } = chunk;
    const maxDepth = this.#maxDepth;
    const floor = this.#keyDepth;
    let depth = this.#depth;
    let i = from;
    while (i < length) {
      const byte = chunk[i];
      i += 1;
      if (byte === QUOTE) {
        const end = endOfString(chunk, i);
        if (end >= length) {
          this.#inString = true;
          this.#stringIsKey = false;
          break;
        }
        this.#stringBytes += end + 1 - i;
        i = end + 1;
      } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
        depth += 1;
        if (depth > maxDepth) {
          this.invalid = "nested too deeply";
          break;
        }
      } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
        depth -= 1;
        if (depth === floor) break;
      }
    }
    this.#depth = depth;
    this.#lastSolid = this.#offset + i;
    return i;
  }

  #open(byte: number, i: number): void {
    this.#depth += 1;
    if (this.#depth > this.#maxDepth) {
      this.invalid = "nested too deeply";
      return;
    }
    if (this.#depth === 1) {
      this.complete = false;
      this.#rootDepth = byte === OPEN_BRACKET ? 2 : 1;
      this.#keyDepth = this.#rootDepth;
      if (byte === OPEN_BRACE) this.bodyStart = this.#offset + i + 1;
      this.#expectKey = byte === OPEN_BRACE;
      return;
    }
    if (byte !== OPEN_BRACE) return;
    if (this.#depth === this.#rootDepth && this.#rootDepth === 2) this.#expectKey = true;
    else if (
      this.#depth === this.#rootDepth + 1 &&
      this.#key !== undefined &&
      this.#parents.has(this.#key) &&
      this.#parent === ""
    ) {
      this.#parent = this.#key;
      this.#keyDepth = this.#depth;
      this.#key = undefined;
      this.#expectKey = true;
    }
  }

  #close(chunk: Buffer, i: number): void {
    if (this.#depth === this.#keyDepth) {
      this.#endValue(chunk);
      if (this.#depth === this.#rootDepth + 1) {
        this.#keyDepth = this.#rootDepth;
        this.#parent = "";
      }
    }
    this.#depth -= 1;
    if (this.#depth === 0) {
      this.complete = true;
      this.#keyDepth = 0;
    } else if (this.#depth < 0) this.invalid = `unexpected bracket at byte ${this.#offset + i}`;
  }

  #beginValue(i: number): void {
    this.#afterColon = false;
    const name = this.#parent === "" ? this.#key : `${this.#parent}.${this.#key}`;
    if (name !== undefined && this.#wanted.has(name)) this.#capture.begin(name, this.#offset + i);
  }

  #endValue(chunk: Buffer): void {
    this.#key = undefined;
    const { key } = this.#capture;
    if (key === undefined) return;
    const { span, bytes } = this.#capture.end(chunk, this.#offset, this.#lastSolid);
    this.#options.value(key, span, bytes);
  }

  #keepPieces(chunk: Buffer): void {
    if (this.#capture.key !== undefined) this.#capture.keep(chunk, this.#offset);
    if (this.#inString && this.#stringIsKey) {
      this.#keyParts.push(chunk.subarray(this.#keyStart));
      this.#keyStart = 0;
    }
  }

  #skipString(chunk: Buffer, from: number): number {
    let i = from;
    if (this.#escaped) {
      this.#escaped = false;
      i += 1;
    }
    const length = chunk.length;
    for (;;) {
      const stop = Math.min(length, i + SHORT_STRING_BYTES);
      while (i < stop) {
        const byte = chunk[i];
        if (byte === QUOTE) return this.#endString(chunk, i);
        i += byte === BACKSLASH ? 2 : 1;
      }
      if (i >= length) break;
      const quote = chunk.indexOf(QUOTE, i);
      const end = quote < 0 ? length : quote;
      let backslashes = 0;
      while (end - 1 - backslashes >= i && chunk[end - 1 - backslashes] === BACKSLASH) backslashes += 1;
      if (quote < 0) {
        this.#escaped = backslashes % 2 === 1;
        return length;
      }
      if (backslashes % 2 === 0) return this.#endString(chunk, quote);
      i = quote + 1;
    }
    this.#escaped = i > length;
    return length;
  }

  #endString(chunk: Buffer, quote: number): number {
    this.#inString = false;
    this.#lastSolid = this.#offset + quote + 1;
    if (this.#stringIsKey) {
      this.#key = this.#known(
        this.#keyParts.length === 0 ? this.#keyAt(chunk, quote) : this.#keyInPieces(chunk, quote),
      );
      this.#expectKey = false;
    }
    return quote + 1;
  }

  #known(key: string): string {
    const { withoutCase } = this.#options.keys;
    if (withoutCase === undefined || key === OTHER_KEY || this.#wanted.has(key)) return key;
    const meant = withoutCase.get(foldCase(key));
    if (meant === undefined || meant === key) return key;
    this.otherCase ??= key;
    return meant;
  }

  /** Decodes a key only if its first byte may begin a requested key, because an object may have 100,000 keys. */
  #keyAt(chunk: Buffer, quote: number): string {
    return this.#mayBegin[chunk[this.#keyStart] as number] === 1
      ? decodeString(chunk.toString("utf8", this.#keyStart, quote))
      : OTHER_KEY;
  }

  #keyInPieces(chunk: Buffer, quote: number): string {
    const bytes = Buffer.concat([...this.#keyParts, chunk.subarray(this.#keyStart, quote)]);
    this.#keyParts = [];
    return decodeString(bytes.toString("utf8"));
  }
}

/** The UTF-8 encoding of U+017F, which matches `s` when case is ignored, starts with this byte. */
const LONG_S_LEAD = 0xc5;
export const OTHER_KEY = "";

export interface JsonKeys {
  readonly wanted: ReadonlySet<string>;
  readonly parents: ReadonlySet<string>;
  /** The entry of a byte is 1 if a requested key may start with it. */
  readonly mayBegin: Uint8Array;
  /** Maps case-folded keys to the requested keys, if keys in a different case also match. */
  readonly withoutCase?: ReadonlyMap<string, string>;
}

/** Each key belongs to the outermost object, or to a nested object if it is written as `parent.key`. */
export function jsonKeys(...keys: readonly string[]): JsonKeys {
  const nested = keys.filter((key) => key.includes("."));
  const parents = new Set(nested.map((key) => key.slice(0, key.indexOf("."))));
  const mayBegin = new Uint8Array(256);
  for (const key of keys.flatMap((one) => one.split("."))) mayBegin[key.charCodeAt(0)] = 1;
  // An escape may encode any letter.
  mayBegin[BACKSLASH] = 1;
  return { wanted: new Set(keys), parents, mayBegin };
}

/** Also matches keys in a different case, because some decoders ignore case. */
export function jsonKeysOfAnyCase(...keys: readonly string[]): JsonKeys {
  const { wanted, parents, mayBegin } = jsonKeys(...keys);
  const names = keys.flatMap((key) => key.split("."));
  for (const name of names) mayBegin[name.toUpperCase().charCodeAt(0)] = 1;
  mayBegin[LONG_S_LEAD] = 1;
  return { wanted, parents, mayBegin, withoutCase: new Map(names.map((name) => [foldCase(name), name])) };
}

export class JsonCapture {
  key: string | undefined = undefined;
  readonly #maxBytes: number;
  #start = -1;
  #pieces: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  begin(key: string, start: number): void {
    this.key = key;
    this.#start = start;
    this.#pieces = [];
    this.#bytes = 0;
  }

  keep(chunk: Buffer, offset: number): void {
    const piece = this.#start > offset ? chunk.subarray(this.#start - offset) : chunk;
    this.#bytes += piece.length;
    if (this.#bytes <= this.#maxBytes) this.#pieces.push(piece);
  }

  end(chunk: Buffer, offset: number, end: number): { span: Span; bytes: Buffer | undefined } {
    this.key = undefined;
    // In invalid JSON, the value may be empty.
    const span = { start: this.#start, end: Math.max(this.#start, end) };
    const bytes = this.#valueOf(chunk, offset, span);
    this.#pieces = [];
    return { span, bytes };
  }

  #valueOf(chunk: Buffer, offset: number, span: Span): Buffer | undefined {
    const size = span.end - span.start;
    if (size > this.#maxBytes) return undefined;
    if (this.#pieces.length === 0) return chunk.subarray(span.start - offset, span.end - offset);
    const whole = Buffer.concat([...this.#pieces, chunk.subarray(0, Math.max(0, span.end - offset))]);
    return whole.length > size ? whole.subarray(0, size) : whole;
  }
}

export function spliceBytes(bytes: Buffer, edits: readonly Edit[]): readonly Buffer[] {
  if (edits.length === 0) return [bytes];
  const pieces: Buffer[] = [];
  let from = 0;
  for (const { start, end, text } of [...edits].sort((a, b) => a.start - b.start)) {
    if (start > from) pieces.push(bytes.subarray(from, start));
    if (text !== "") pieces.push(Buffer.from(text));
    from = end;
  }
  if (from < bytes.length) pieces.push(bytes.subarray(from));
  return pieces;
}
