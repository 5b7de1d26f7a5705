/**
 * Parses HTTP/1.1 requests from the bytes of a connection, one at a time: splits the head into its lines, finds out how
 * the body is framed, and reads the body. A line that violates the grammar is rejected (RequestError). A readable head
 * that could be framed in two ways (RFC 9112 sections 6.3 and 11) is returned with its fault. `readRequestHead` judges
 * what the lines say.
 */

import { constantRegExp } from "../../base/constant-regexp.ts";
import { isHeaderName, lowerHeaderName } from "../../base/header-names.ts";
import type { PeerInput } from "../../base/peer-inputs.ts";
import { areHeaderLines, isHeaderValue } from "../headers.ts";
import { beginsWithMethod, isKnownMethod, type ReceivedHead, RequestError } from "../request-head.ts";
import {
  ChunkedParser,
  type ChunkState,
  CR,
  CRLF,
  END_OF_HEAD,
  hexDigit,
  LF,
  listsToken,
  MAX_TRAILER_BYTES,
  NOT_YET,
  SEMICOLON,
  TOO_LONG,
  trimmed,
} from "./message-framing.ts";

export interface ParsedRequest extends ReceivedHead {
  readonly version: "1.0" | "1.1";
  readonly areLinesSafe: true;
  readonly isChunked: boolean;
  readonly contentLength: number | undefined;
  readonly keepAlive: boolean;
  /** The `upgrade` header, or undefined if `connection` does not list `upgrade`. */
  readonly upgrade: string | undefined;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern matches control characters
const FORBIDDEN_SO_FAR = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n|$)|(?<!\r)\n/g;
/** Enough for the longest method and the space after it. */
const BEGINNING_BYTES = 17;
/** These trailers could replace the body length or host at a server that merges trailers into headers. */
const FRAMING_TRAILER = /^(?:content-length|transfer-encoding|host)$/i;
const LENGTH = /^[0-9]{1,15}$/;
const OTHER_HTTP = /^HTTP\/(?:0\.9|2\.0)$/;
const TOKEN = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+";
const EXTENSIONS = constantRegExp(
  `^(?:;${TOKEN}(?:=(?:${TOKEN}|"(?:[\\t !#-\\[\\]-~\\x80-\\xff]|\\\\[\\t -~\\x80-\\xff])*"))?)+$`,
);

/**
 * Rejects bytes that cannot become a valid head, before its end arrives. The first `checked` bytes were checked before, so
 * that a head in many pieces is not read again for each of them.
 */
function checkPartialHead(head: Buffer, checked: number): void {
  if (checked < BEGINNING_BYTES && !beginsWithMethod(head.toString("latin1", 0, BEGINNING_BYTES)))
    throw new RequestError("bad", "the request does not begin with a method");
  // The last checked byte may be a CR, whose verdict depends on the next byte, or an LF, which needs the byte before it.
  const from = Math.max(0, checked - 2);
  FORBIDDEN_SO_FAR.lastIndex = Math.max(0, checked - 1 - from);
  if (FORBIDDEN_SO_FAR.test(head.toString("latin1", from)))
    throw new RequestError("bad", "a control character in the head");
}

/** `text` is the head without the final empty line. */
function parseRequestHead(text: string): ParsedRequest {
  let lineEnd = text.indexOf("\r\n");
  const line = lineEnd < 0 ? text : text.slice(0, lineEnd);
  const methodEnd = line.indexOf(" ");
  const targetEnd = line.indexOf(" ", methodEnd + 1);
  const method = line.slice(0, Math.max(0, methodEnd));
  const target = line.slice(methodEnd + 1, targetEnd < 0 ? undefined : targetEnd);
  const isOld = isHttp10(method, targetEnd < 0 ? "HTTP/0.9" : line.slice(targetEnd + 1));

  const areValues = areHeaderLines(text);
  const pairs: string[] = [];
  let length: string | undefined;
  let coding: string | undefined;
  let connection: string | undefined;
  let upgrade: string | undefined;
  let expect: string | undefined;
  let fault: string | undefined;
  while (lineEnd >= 0) {
    const start = lineEnd + 2;
    lineEnd = text.indexOf("\r\n", start);
    const end = lineEnd < 0 ? text.length : lineEnd;
    const colon = text.indexOf(":", start);
    const name = lowerHeaderName(text.slice(start, colon < start || colon > end ? start : colon));
    if (name === undefined) throw new RequestError("bad", "a malformed header line");
    const value = trimmed(text, colon + 1, end);
    if (!areValues && !isHeaderValue(value)) throw new RequestError("bad", "a control character in the head");
    pairs.push(name, value);
    switch (name) {
      case "content-length":
        fault ??= tabFault(text, colon, end);
        if (length !== undefined) fault ??= "more than one content-length header";
        length = value;
        break;
      case "transfer-encoding":
        fault ??= tabFault(text, colon, end);
        if (coding !== undefined) fault ??= "more than one transfer-encoding header";
        coding = value;
        break;
      case "connection":
        connection = connection === undefined ? value : `${connection},${value}`;
        break;
      case "upgrade":
        upgrade = upgrade === undefined ? value : `${upgrade},${value}`;
        break;
      case "expect":
        expect = value;
    }
  }
  fault ??= framingFault(length, coding, isOld);
  const tokens = connection === undefined ? "" : connection.toLowerCase();
  return {
    method,
    target,
    version: isOld ? "1.0" : "1.1",
    pairs,
    areLinesSafe: true,
    bytes: text.length,
    isChunked: coding !== undefined,
    contentLength: length === undefined ? undefined : Number(length),
    keepAlive: isOld ? listsToken(tokens, "keep-alive") && !listsToken(tokens, "close") : !listsToken(tokens, "close"),
    expects:
      expect === undefined || isOld ? "nothing" : expect.toLowerCase() === "100-continue" ? "continue" : "unknown",
    upgrade: upgrade !== undefined && listsToken(tokens, "upgrade") ? upgrade : undefined,
    fault,
  };
}

/** `text` includes the first semicolon. */
function checkExtensions(text: string): void {
  if (!EXTENSIONS.test(text)) throw new RequestError("bad", "a malformed chunk extension");
}

function checkTrailer(line: string): void {
  if (!isHeaderValue(line)) throw new RequestError("bad", "a control character in a trailer");
  const name = line.slice(0, Math.max(0, line.indexOf(":")));
  if (!isHeaderName(name)) throw new RequestError("bad", "a malformed trailer");
  if (FRAMING_TRAILER.test(name)) throw new RequestError("bad", "a trailer that frames the message");
}

function isHttp10(method: string, version: string): boolean {
  if (version === "HTTP/1.1") return false;
  if (version === "HTTP/1.0") return true;
  const isRequest = OTHER_HTTP.test(version) && isKnownMethod(method);
  throw new RequestError(isRequest ? "version" : "bad", "the HTTP version is not 1.0 or 1.1");
}

function framingFault(length: string | undefined, coding: string | undefined, isOld: boolean): string | undefined {
  if (coding !== undefined) {
    if (length !== undefined) return "both content-length and transfer-encoding";
    return isOld || coding.toLowerCase() !== "chunked" ? "transfer-encoding other than chunked" : undefined;
  }
  return length !== undefined && !LENGTH.test(length) ? "the content-length is not a number" : undefined;
}

/** Parsers disagree on whether a tab is white space in these lines. */
function tabFault(text: string, from: number, to: number): string | undefined {
  const tab = text.indexOf("\t", from);
  return tab >= 0 && tab < to ? "a tab in a header that frames the message" : undefined;
}

const MAX_EMPTY_LINES = 8;

/**
 * Skips empty lines before a request, because some clients send an empty line after a body (RFC 9112 section 2.2). A
 * single CR or LF is rejected, because another parser could treat it as the start of the request.
 */
class EmptyLines {
  #lines = 0;
  #sawCr = false;

  /** Returns the offset of the request, or the end of the chunk if the request has not started. */
  skip(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at];
      if (this.#sawCr) {
        if (byte !== LF) throw new RequestError("bad", "a control character before the request");
        this.#sawCr = false;
        this.#lines += 1;
        if (this.#lines > MAX_EMPTY_LINES) throw new RequestError("bad", "too many empty lines before the request");
      } else if (byte === CR) this.#sawCr = true;
      else if (byte === LF) throw new RequestError("bad", "a control character before the request");
      else {
        this.#lines = 0;
        return at;
      }
    }
    return chunk.length;
  }
}

export interface RequestEvents {
  /**
   * `body` is the complete body if it is small and arrived with the head. Otherwise `data` and `end` follow if there is
   * a body.
   */
  head(request: ParsedRequest, body: Buffer | undefined): void;
  data(chunk: Buffer): void;
  /** Called when a body that was not passed to `head` is complete. */
  end(): void;
}

/** A body up to this size that arrived with its head is passed without a stream. */
const WHOLE_BODY_BYTES = 64 * 1024;

/**
 * Complete chunks below this size are joined, because an event for each would let one client keep the process busy.
 */
const TINY_CHUNK_BYTES = 256;
const TINY_SIZE_DIGITS = 2;

/** `between` is before the first byte of a head. `stopped` discards all further bytes. */
type RequestState = "between" | "head" | "length" | "stopped";

export class RequestParser extends ChunkedParser<RequestState> {
  readonly #head: PeerInput<"HTTP head">;
  readonly #events: RequestEvents;
  protected override state: RequestState | ChunkState = "between";
  #trailerBytes = 0;
  readonly #empty = new EmptyLines();
  #lines = 0;
  /** True if a request has just ended, so that further bytes must wait. */
  #isAtEnd = false;

  constructor(head: PeerInput<"HTTP head">, framing: PeerInput<"HTTP body">, events: RequestEvents) {
    super(framing);
    this.#head = head;
    this.#events = events;
  }

  /** True if the next request has not started. Empty lines may have been received. */
  get isBetween(): boolean {
    return this.state === "between";
  }

  get partialHead(): Buffer | undefined {
    return this.state === "head" ? this.line.held : undefined;
  }

  get isInBody(): boolean {
    return this.state !== "between" && this.state !== "head" && this.state !== "stopped";
  }

  stop(): void {
    this.state = "stopped";
    this.line.clear();
  }

  /**
   * Parses at most to the end of one request and returns that offset. Throws a RequestError for invalid input, after
   * which the parser is stopped.
   */
  push(chunk: Buffer, from: number): number {
    try {
      return this.#push(chunk, from);
    } catch (error) {
      this.stop();
      throw error;
    }
  }

  #push(chunk: Buffer, from: number): number {
    let at = from;
    this.#isAtEnd = false;
    while (at < chunk.length && !this.#isAtEnd) {
      switch (this.state) {
        case "between":
          at = this.#empty.skip(chunk, at);
          if (at < chunk.length) this.state = "head";
          break;
        case "head":
          at = this.#readHead(chunk, at);
          break;
        case "stopped":
          return chunk.length;
        default:
          at = this.readBody(chunk, at);
      }
    }
    return at;
  }

  #readHead(chunk: Buffer, at: number): number {
    const held = this.line.held;
    try {
      return this.#tryHead(chunk, at);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      const received = held === undefined ? chunk.subarray(at) : Buffer.concat([held, chunk.subarray(at)]);
      const head = received.subarray(0, this.#head.maxBytes);
      const first = error.kind === "too-large" ? faultInPart(head) : undefined;
      const fault = first ?? error;
      fault.head = head;
      throw fault;
    }
  }

  #tryHead(chunk: Buffer, at: number): number {
    const next = this.#takeUntil(chunk, at, END_OF_HEAD, this.#head.maxBytes, "the head is larger than 16 KiB");
    if (next === NOT_YET) {
      if (this.line.held !== undefined) checkPartialHead(this.line.held, this.line.heldBefore);
      return chunk.length;
    }
    const request = parseRequestHead(this.line.text);
    this.line.text = "";
    return this.#begin(request, chunk, next);
  }

  #begin(request: ParsedRequest, chunk: Buffer, next: number): number {
    if (request.fault !== undefined) {
      this.stop();
      this.#events.head(request, undefined);
      return chunk.length;
    }
    if (request.isChunked) {
      this.extensionBytes = 0;
      this.#trailerBytes = 0;
      this.nextChunk();
      this.#events.head(request, undefined);
      return next;
    }
    const length = request.contentLength ?? 0;
    const whole = next + length;
    if (whole <= chunk.length && length <= WHOLE_BODY_BYTES) {
      this.#endOfRequest();
      this.#events.head(request, length === 0 ? undefined : chunk.subarray(next, whole));
      return whole;
    }
    this.state = "length";
    this.left = length;
    this.#events.head(request, undefined);
    return next;
  }

  protected override readData(chunk: Buffer, at: number): number {
    const end = at + this.left;
    if (end > chunk.length) {
      this.left -= chunk.length - at;
      this.#events.data(at === 0 ? chunk : chunk.subarray(at));
      return chunk.length;
    }
    const wasLength = this.state === "length";
    if (!wasLength && end - at < TINY_CHUNK_BYTES) {
      const last = this.#readTinyChunks(chunk, at, end);
      if (last > end) return last;
    }
    if (wasLength) this.#endOfRequest();
    else this.state = "chunk-end";
    this.#events.data(at === 0 && end === chunk.length ? chunk : chunk.subarray(at, end));
    if (wasLength) this.#events.end();
    return end;
  }

  /**
   * Emits the data from `at` to `end` together with the data of the tiny chunks that follow in this read, and returns
   * the end of the last one. Returns `end` and emits nothing if none follows. The state machine handles all other
   * input.
   */
  #readTinyChunks(chunk: Buffer, at: number, end: number): number {
    let joined: Buffer | undefined;
    let length = 0;
    let last = end;
    for (;;) {
      const start = tinyChunkStart(chunk, last);
      if (start < 0) break;
      const size = tinyChunkSize(chunk, last + 2, start);
      if (size === 0 || start + size > chunk.length) break;
      if (joined === undefined) {
        joined = Buffer.allocUnsafe(chunk.length - at);
        length = chunk.copy(joined, 0, at, end);
      }
      length += chunk.copy(joined, length, start, start + size);
      last = start + size;
    }
    if (joined === undefined) return end;
    this.left = 0;
    this.state = "chunk-end";
    this.#events.data(joined.subarray(0, length));
    return last;
  }

  protected override readChunkSize(chunk: Buffer, from: number): number {
    const at = this.readSizeDigits(chunk, from);
    if (at === chunk.length) return at;
    const byte = chunk[at];
    if (byte !== CR && byte !== SEMICOLON) this.fail("a chunk size is not a number");
    this.state = byte === CR ? "chunk-size-end" : "chunk-extension";
    // The extension is checked with its semicolon.
    return byte === CR ? at + 1 : at;
  }

  /** Extensions are ignored (RFC 9112 section 7.1.1), but they must not hide a line break or grow without limit. */
  protected override readChunkExtension(chunk: Buffer, at: number): number {
    const next = this.#takeUntil(chunk, at, CRLF, this.framing.maxBytes, "the chunk extensions are too long");
    this.extensionBytes += (next === NOT_YET ? chunk.length : next) - at;
    if (this.extensionBytes > this.framing.maxBytes)
      throw new RequestError("extensions", "the chunk extensions are too long");
    if (next === NOT_YET) {
      if (this.line.held?.includes(LF, this.line.heldBefore))
        throw new RequestError("bad", "a control character in a chunk extension");
      return chunk.length;
    }
    checkExtensions(this.line.text);
    this.state = this.left === 0 ? "trailers" : "chunk-data";
    return next;
  }

  protected override fail(reason: string): never {
    throw new RequestError("bad", reason);
  }

  protected override readTrailer(chunk: Buffer, at: number): number {
    const next = this.#takeUntil(chunk, at, CRLF, MAX_TRAILER_BYTES, "the trailers are too large");
    if (next === NOT_YET) {
      if (this.line.held?.includes(LF, this.line.heldBefore))
        throw new RequestError("bad", "a control character in a trailer");
      return chunk.length;
    }
    if (this.line.text !== "") {
      checkTrailer(this.line.text);
      this.#lines += 1;
      this.#trailerBytes += this.line.text.length;
      if (this.#lines > this.framing.maxItems || this.#trailerBytes > MAX_TRAILER_BYTES)
        throw new RequestError("too-large", "the trailers are too large");
      return next;
    }
    this.#endOfRequest();
    this.#events.end();
    return next;
  }

  #endOfRequest(): void {
    this.state = "between";
    this.#lines = 0;
    this.#isAtEnd = true;
  }

  /** Extracts the text before the mark and returns the offset to continue at, or NOT_YET until the mark arrives. */
  #takeUntil(chunk: Buffer, at: number, mark: Buffer, maxBytes: number, tooLarge: string): number {
    const next = this.line.take(chunk, at, mark, maxBytes);
    if (next === TOO_LONG)
      throw new RequestError(this.state === "chunk-extension" ? "extensions" : "too-large", tooLarge);
    return next;
  }
}

/** Finds a fault before the limit, so that the verdict does not depend on the pieces in which a large head arrives. */
function faultInPart(head: Buffer): RequestError | undefined {
  try {
    checkPartialHead(head, 0);
    return undefined;
  } catch (error) {
    if (error instanceof RequestError) return error;
    throw error;
  }
}

/**
 * `at` is the end of the previous chunk's data. Returns the offset of the next chunk's data, or -1 if no complete,
 * plain size line follows.
 */
function tinyChunkStart(chunk: Buffer, at: number): number {
  if (chunk[at] !== CR || chunk[at + 1] !== LF) return -1;
  let next = at + 2;
  while (next < at + 2 + TINY_SIZE_DIGITS && hexDigit(chunk[next] ?? 0) >= 0) next += 1;
  return next > at + 2 && chunk[next] === CR && chunk[next + 1] === LF ? next + 2 : -1;
}

function tinyChunkSize(chunk: Buffer, from: number, start: number): number {
  let size = 0;
  for (let at = from; at < start - 2; at++) size = size * 16 + hexDigit(chunk[at] as number);
  return size;
}
