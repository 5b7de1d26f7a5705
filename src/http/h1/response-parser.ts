/**
 * Parses HTTP/1.1 responses. The parser rejects input that two parsers could frame differently (RFC 9112 sections 6.3
 * and 11), and a 101 response that does not accept the requested upgrade. Otherwise, a backend that can be made to send
 * any status would turn the connection into a tunnel that no rule reads.
 */

import { createHash } from "node:crypto";
import { ExpectedError } from "../../base/errors.ts";
import { lowerHeaderName } from "../../base/header-names.ts";
import type { PeerInput } from "../../base/peer-inputs.ts";
import { areHeaderLines, HeaderList, isHeaderValue } from "../headers.ts";
import {
  ChunkedParser,
  type ChunkState,
  CR,
  CRLF,
  END_OF_HEAD,
  listsToken,
  MAX_TRAILER_BYTES,
  NOT_YET,
  SEMICOLON,
  SPACE,
  TAB,
  TOO_LONG,
  trimmed,
} from "./message-framing.ts";

export interface RequestedUpgrade {
  /** A lowercase token, for example `websocket`. */
  readonly protocol: string;
  /** The `sec-websocket-key` of the request. */
  readonly key: string | undefined;
}

/** RFC 6455 section 1.3. */
const WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Throws a ResponseError if the response does not accept the requested upgrade (RFC 9110 section 7.8). */
function checkUpgradeResponse(headers: HeaderList, framing: Framing, requested: RequestedUpgrade | undefined): void {
  if (requested === undefined) throw new ResponseError("an unexpected upgrade");
  const { protocol, key } = requested;
  if (headers.get("upgrade")?.toLowerCase() !== protocol)
    throw new ResponseError(`an upgrade to another protocol than ${protocol}`);
  if (!listsToken(headers.get("connection")?.toLowerCase() ?? "", "upgrade"))
    throw new ResponseError("an upgrade without the header connection: upgrade");
  // Another parser could read the first bytes of the new protocol as the declared body.
  if (framing.chunked || (framing.length ?? 0) > 0) throw new ResponseError("an upgrade with a body");
  if (protocol !== "websocket") return;
  if (key === undefined) throw new ResponseError("an upgrade to websocket without a key in the request");
  if (headers.get("sec-websocket-accept") !== acceptFor(key))
    throw new ResponseError("an upgrade to websocket whose sec-websocket-accept does not match the request's key");
}

function acceptFor(key: string): string {
  return createHash("sha1").update(key).update(WEBSOCKET_GUID).digest("base64");
}

export interface ParsedHead {
  readonly status: number;
  readonly headers: HeaderList;
  readonly keepAlive: boolean;
}

export class ResponseError extends ExpectedError {
  constructor(message: string) {
    super(message);
    this.name = "ResponseError";
  }
}

/** The reason phrase may contain any character of a header value. */
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const LENGTH = /^[0-9]{1,15}$/;

export interface Framing {
  readonly chunked: boolean;
  /** If the length is undefined and the body is not chunked, the body ends when the connection closes. */
  readonly length: number | undefined;
}

function parseResponseHead(text: string): { head: ParsedHead; framing: Framing } {
  let lineEnd = text.indexOf("\r\n");
  const status = STATUS_LINE.exec(lineEnd < 0 ? text : text.slice(0, lineEnd));
  if (!status) throw new ResponseError("the response does not begin with an HTTP/1.1 status line");
  const isOld = status[1] === "0";
  // HTTP/1.0 has no interim responses. Its clients would parse the final response as the body of an interim response.
  if (isOld && (status[2] as string) < "200") throw new ResponseError("an interim response in HTTP/1.0");
  const areValues = areHeaderLines(text);
  const pairs: string[] = [];
  let length: number | undefined;
  let chunked = false;
  let connection = "";
  while (lineEnd >= 0) {
    const start = lineEnd + 2;
    lineEnd = text.indexOf("\r\n", start);
    const end = lineEnd < 0 ? text.length : lineEnd;
    const colon = text.indexOf(":", start);
    const name = nameBefore(text, start, colon, end);
    const value = areValues ? trimmed(text, colon + 1, end) : valueAfter(text, colon, end);
    pairs.push(name, value);
    // Parsers disagree on a tab next to a length or a coding, and therefore on the end of the body.
    if (name === "content-length" || name === "transfer-encoding") {
      const tab = text.indexOf("\t", colon);
      if (tab >= 0 && tab < end) throw new ResponseError("a tab in a header that frames the body");
    }
    if (name === "content-length") {
      if (length !== undefined || !LENGTH.test(value))
        throw new ResponseError("the content-length is repeated or not a number");
      length = Number(value);
    } else if (name === "transfer-encoding") {
      if (chunked || isOld || value.toLowerCase() !== "chunked")
        throw new ResponseError("a transfer-encoding other than chunked");
      chunked = true;
    } else if (name === "connection") connection += `,${value.toLowerCase()}`;
  }
  if (chunked && length !== undefined) throw new ResponseError("both content-length and transfer-encoding");
  // With HTTP/1.0, only the exact token keeps the connection alive. Any text that contains `close` closes it.
  const keepAlive = !connection.includes("close") && (!isOld || listsToken(connection, "keep-alive"));
  return {
    head: { status: Number(status[2]), headers: new HeaderList(pairs, true), keepAlive },
    framing: { chunked, length },
  };
}

function parseTrailer(line: string): [name: string, value: string] {
  const colon = line.indexOf(":");
  const name = nameBefore(line, 0, colon, line.length);
  // The body has ended, so a length in the trailers could only target another parser (RFC 9110 section 6.5.1).
  if (name === "content-length" || name === "transfer-encoding") throw new ResponseError(`a ${name} in the trailers`);
  return [name, valueAfter(line, colon, line.length)];
}

function nameBefore(text: string, start: number, colon: number, end: number): string {
  const name = lowerHeaderName(text.slice(start, colon < start || colon > end ? start : colon));
  if (name === undefined) throw new ResponseError("a malformed header line");
  return name;
}

/** A line ends with CR LF only. A single CR or LF is not allowed in a value. */
function valueAfter(text: string, colon: number, end: number): string {
  const value = trimmed(text, colon + 1, end);
  if (!isHeaderValue(value)) throw new ResponseError("a control character in the response head");
  return value;
}

/** Joins the body bytes of one read, because the downstream cost is per chunk, not per byte. */
class GatheredBody {
  #from = 0;
  #end = 0;

  /** Moves the bytes to the end of the bytes added before. All calls until `take` must pass the same chunk. */
  add(chunk: Buffer, from: number, to: number): void {
    if (this.#end === 0) {
      this.#from = from;
      this.#end = to;
      return;
    }
    chunk.copyWithin(this.#end, from, to);
    this.#end += to - from;
  }

  take(chunk: Buffer): Buffer | undefined {
    const end = this.#end;
    if (end === 0) return undefined;
    this.#end = 0;
    return this.#from === 0 && end === chunk.length ? chunk : chunk.subarray(this.#from, end);
  }
}

export interface ParserEvents {
  head(head: ParsedHead): void;
  data(chunk: Buffer): void;
  end(trailers: string[]): void;
  /** Called for status 101. The bytes after the head are in the new protocol. */
  upgrade(head: ParsedHead, rest: Buffer): void;
}

const NO_BYTES = Buffer.alloc(0);

type ResponseState = "idle" | "head" | "length" | "chunk-blanks" | "until-close";

export class ResponseParser extends ChunkedParser<ResponseState> {
  readonly #head: PeerInput<"HTTP head">;
  readonly #events: ParserEvents;
  protected override state: ResponseState | ChunkState = "idle";
  #isHead = false;
  #upgrade: RequestedUpgrade | undefined = undefined;
  #interim = 0;
  #trailers: string[] = [];
  readonly #body = new GatheredBody();

  /** `head` also limits the number of interim responses. */
  constructor(head: PeerInput<"HTTP head">, framing: PeerInput<"HTTP body">, events: ParserEvents) {
    super(framing);
    this.#head = head;
    this.#events = events;
  }

  get isIdle(): boolean {
    return this.state === "idle";
  }

  expect(method: string, upgrade?: RequestedUpgrade): void {
    this.state = "head";
    this.#isHead = method === "HEAD";
    this.#upgrade = upgrade;
    this.#interim = 0;
    this.extensionBytes = 0;
    this.line.clear();
    this.#trailers = [];
  }

  /**
   * Takes ownership of the bytes. Throws a ResponseError after emitting everything before the fault, and the
   * connection cannot be used afterwards.
   */
  push(chunk: Buffer): void {
    try {
      this.#read(chunk);
    } finally {
      this.#handOn(chunk);
    }
  }

  #read(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      switch (this.state) {
        case "idle":
          throw new ResponseError("unexpected bytes");
        case "head":
          at = this.#readHead(chunk, at);
          break;
        case "chunk-blanks":
          at = this.#readChunkBlanks(chunk, at);
          break;
        case "until-close":
          this.#events.data(at === 0 ? chunk : chunk.subarray(at));
          return;
        default:
          at = this.readBody(chunk, at);
      }
    }
  }

  /** Called when the server closed the connection. Throws if a response is missing or incomplete. */
  eof(): void {
    if (this.state === "until-close") this.#end(NO_BYTES, []);
    else if (this.state !== "idle")
      throw new ResponseError(
        this.state === "head"
          ? "the connection was closed before a response"
          : "the connection was closed in the middle of the response",
      );
  }

  #readHead(chunk: Buffer, at: number): number {
    const next = this.#takeUntil(
      chunk,
      at,
      END_OF_HEAD,
      this.#head.maxBytes,
      "the response head is larger than 32 KiB",
    );
    if (next === NOT_YET) return chunk.length;
    const { head, framing } = parseResponseHead(this.line.text);
    if (head.status === 101) {
      checkUpgradeResponse(head.headers, framing, this.#upgrade);
      this.state = "idle";
      this.#events.upgrade(head, chunk.subarray(next));
      return chunk.length;
    }
    if (head.status < 200) {
      this.#interim += 1;
      if (this.#interim > this.#head.maxItems) throw new ResponseError("too many interim responses");
      // An interim response has no body (RFC 9110 section 15.2). Another parser could read the following bytes as the
      // declared body.
      if (framing.chunked || (framing.length ?? 0) > 0) throw new ResponseError("an interim response with a body");
      return next;
    }
    const hasBody = !this.#isHead && head.status !== 204 && head.status !== 304;
    if (!hasBody || framing.length === 0) {
      this.#events.head(head);
      this.#end(chunk, []);
    } else if (framing.chunked) {
      this.nextChunk();
      this.#events.head(head);
    } else if (framing.length === undefined) {
      this.state = "until-close";
      this.#events.head({ ...head, keepAlive: false });
    } else {
      this.state = "length";
      this.left = framing.length;
      this.#events.head(head);
    }
    return next;
  }

  protected override readData(chunk: Buffer, at: number): number {
    const end = at + this.left;
    if (end > chunk.length) {
      this.left -= chunk.length - at;
      this.#body.add(chunk, at, chunk.length);
      return chunk.length;
    }
    const wasLength = this.state === "length";
    if (!wasLength) this.state = "chunk-end";
    this.#body.add(chunk, at, end);
    if (wasLength) this.#end(chunk, []);
    return end;
  }

  #handOn(chunk: Buffer): void {
    const data = this.#body.take(chunk);
    if (data !== undefined) this.#events.data(data);
  }

  protected override readChunkSize(chunk: Buffer, from: number): number {
    const at = this.readSizeDigits(chunk, from);
    if (at === chunk.length) return at;
    const byte = chunk[at];
    if (byte === CR) this.state = "chunk-size-end";
    else if (byte === SEMICOLON) this.state = "chunk-extension";
    else if (byte === SPACE || byte === TAB) this.state = "chunk-blanks";
    else this.fail("a chunk size is not a number");
    return at + 1;
  }

  /**
   * Some servers pad their sizes with spaces. Digits after a space are rejected, because parsers interpret them
   * differently.
   */
  #readChunkBlanks(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (byte === CR || byte === SEMICOLON) {
        this.state = byte === CR ? "chunk-size-end" : "chunk-extension";
        return at + 1;
      }
      this.extensionBytes += 1;
      if (byte !== SPACE && byte !== TAB) throw new ResponseError("a chunk size is not a number");
      if (this.extensionBytes > this.framing.maxBytes) throw new ResponseError("the chunk extensions are too long");
    }
    return chunk.length;
  }

  /** Extensions are ignored (RFC 9112 section 7.1.1), but they must not hide a line break or grow without limit. */
  protected override readChunkExtension(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at++) {
      const byte = chunk[at] as number;
      if (byte === CR) {
        this.state = "chunk-size-end";
        return at + 1;
      }
      this.extensionBytes += 1;
      if (byte < 0x20 && byte !== TAB) throw new ResponseError("a control character in a chunk extension");
      if (this.extensionBytes > this.framing.maxBytes) throw new ResponseError("the chunk extensions are too long");
    }
    return chunk.length;
  }

  protected override fail(reason: string): never {
    throw new ResponseError(reason);
  }

  protected override readTrailer(chunk: Buffer, at: number): number {
    const next = this.#takeUntil(chunk, at, CRLF, MAX_TRAILER_BYTES, "the trailers are too large");
    if (next === NOT_YET) return chunk.length;
    if (this.line.text !== "") {
      this.#trailers.push(...parseTrailer(this.line.text));
      if (this.#trailers.length > this.framing.maxItems * 2) throw new ResponseError("too many trailers");
      return next;
    }
    const trailers = this.#trailers;
    this.#trailers = [];
    this.#end(chunk, trailers);
    return next;
  }

  #end(chunk: Buffer, trailers: string[]): void {
    this.#handOn(chunk);
    this.state = "idle";
    this.#events.end(trailers);
  }

  /** Extracts the text before the mark and returns the offset to continue at, or NOT_YET until the mark arrives. */
  #takeUntil(chunk: Buffer, at: number, mark: Buffer, maxBytes: number, tooLarge: string): number {
    const next = this.line.take(chunk, at, mark, maxBytes);
    if (next === TOO_LONG) throw new ResponseError(tooLarge);
    return next;
  }
}
