/**
 * Parses HTTP/1.1 responses. The parser rejects input that two parsers could frame differently (RFC 9112 sections 6.3
 * and 11).
 */

import type { PeerInput } from "../../base/peer-inputs.ts";
import {
  ChunkedParser,
  type ChunkState,
  CR,
  CRLF,
  END_OF_HEAD,
  MAX_TRAILER_BYTES,
  NOT_YET,
  SEMICOLON,
  SPACE,
  TAB,
  TOO_LONG,
} from "./message-framing.ts";
import { type ParsedHead, parseResponseHead, parseTrailer, ResponseError } from "./parse-response-head.ts";
import { checkUpgradeResponse, type RequestedUpgrade } from "./protocol-upgrade.ts";

/** Joins the body bytes of one read, because the downstream cost is per chunk, not per byte. */
export class GatheredBody {
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
