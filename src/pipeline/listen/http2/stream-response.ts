/**
 * Writes the response of one exchange to an HTTP/2 stream with backpressure and trailers. A truncated body resets the
 * stream, so that it does not look complete.
 */
import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import type { LinkedList } from "../../../base/linked-list.ts";
import type { StreamPool } from "../../../base/memory-budget.ts";
import type { Reply } from "../../../core/reply.ts";
import { type BodyCarrier, RequestBodySource } from "../../../http/h1/request-body.ts";
import { FrameReader } from "../../../http/h2/frame-reader.ts";
import { closeStreamLater } from "../../../http/h2/later-ends.ts";
import type { StreamHead } from "../../../http/h2/parse-stream-head.ts";
import type { ReadTurn } from "../../../http/h2/read-turns.ts";
import { HOP_BY_HOP_HEADERS } from "../../../http/header-rules.ts";
import type { HeaderList } from "../../../http/headers.ts";
import { addressKey, Backlog, type ChargedClient } from "../backlog.ts";
import type { IdleConnections, Watched, WatchedPlace } from "../idle.ts";
import type { EntrySink } from "../request-entry.ts";
import type { OpenEndedResponse } from "../response-writer.ts";
import type { StreamCharge } from "./stream-accounts.ts";

/**
 * Converts a head to HTTP/2 fields. Connection headers of HTTP/1.1 are omitted (RFC 9113 section 8.2.2), and repeated
 * names become lists.
 */
export function responseFields(status: number, headers: HeaderList): OutgoingHttpHeaders {
  return fieldsOf(headers.pairs, { ":status": status });
}

function trailerFields(flat: readonly string[] | undefined): OutgoingHttpHeaders {
  return fieldsOf(flat ?? [], {});
}

function fieldsOf(pairs: readonly string[], fields: OutgoingHttpHeaders): OutgoingHttpHeaders {
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const name = pairs[i] as string;
    const value = pairs[i + 1] as string;
    if (HOP_BY_HOP_HEADERS.has(name) || name.startsWith(":") || name === "__proto__") continue;
    const before = Object.hasOwn(fields, name) ? fields[name] : undefined;
    if (before === undefined) fields[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else fields[name] = [String(before), value];
  }
  return fields;
}

const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR } = constants;

/** A complete response is discarded if its client does not read it for this long. */
const UNREAD_MS = 5_000;

/** This much of a paused body may be received and held (RFC 9113 section 6.9.2). */
const WINDOW_BYTES = 65_535;

export interface StreamOwner {
  readonly idle: IdleConnections;
  /** Data frames count as work of the connection. */
  readonly turn: ReadTurn;
  /** Bytes that wait in buffers are charged to this pool. */
  readonly waitingBytes: StreamPool;
  /** These responses have no defined end, so they are ended cleanly when the listener shuts down. */
  readonly streams: LinkedList<OpenEndedResponse>;
  /**
   * Called once per stream. `wasReset` is true if the stream closed before its response ended, but not by the gateway.
   */
  streamEnded(response: StreamResponse, wasReset: boolean): void;
  unexpected(error: unknown): void;
}

export class StreamResponse implements EntrySink, Watched, BodyCarrier, OpenEndedResponse {
  next: OpenEndedResponse | undefined = undefined;
  previous: OpenEndedResponse | undefined = undefined;
  onDrain: (() => void) | undefined = undefined;
  onStalled: (() => void) | undefined = undefined;
  onClose: ((complete: boolean) => void) | undefined = undefined;
  chargedTo: ChargedClient | undefined = undefined;
  /** The connection charges the stream here, and releases the charge when the stream has ended. */
  charge: StreamCharge | undefined = undefined;
  /** WebSocket over HTTP/2 is not supported. */
  readonly isUpgrade = false;
  isBeyondLimit = false;
  readonly body: RequestBodySource | undefined;
  readonly #stream: ServerHttp2Stream;
  readonly #owner: StreamOwner;
  readonly #request: StreamHead;
  readonly #isGrpc: boolean;
  /** The head is held until the next tick or the first write, so that a response without a body can be one frame. */
  #unsent: { readonly status: number; readonly headers: HeaderList } | undefined = undefined;
  #hasHead = false;
  #sendsBody = true;
  #hasEnded = false;
  #hasBody: boolean;
  #mustAskForBody: boolean;
  #awaitsDrain = false;
  #isStalled = false;
  #isCut = false;
  #isClosed = false;
  #frames: FrameReader | undefined = undefined;
  #isBodyPaused = false;
  #bodyBytes = 0;
  #waitingBodyBytes = 0;
  #moved = 0;
  #lastMoved = -1;
  #trailers: readonly string[] | undefined = undefined;
  #unreadMs = 0;
  #watched: WatchedPlace | undefined = undefined;
  #backlog: Backlog | undefined = undefined;

  /** `hasBody` is true if the request ended with its head. */
  constructor(stream: ServerHttp2Stream, request: StreamHead, hasBody: boolean, owner: StreamOwner) {
    this.#stream = stream;
    this.#owner = owner;
    this.#request = request;
    this.#hasBody = hasBody;
    this.#isGrpc = request.isGrpc;
    this.#mustAskForBody = request.expects === "continue";
    this.body = hasBody ? undefined : new RequestBodySource(this);
    stream.on("error", ignore);
    stream.on("close", () => this.#contain(() => this.#closed()));
    stream.on("drain", () => this.#contain(() => this.#drained()));
    if (this.body === undefined) stream.resume();
    else this.#frames = this.#readBody(this.body);
    stream.on("wantTrailers", () => this.#contain(() => this.#sendTrailers()));
  }

  #readBody(body: RequestBodySource): FrameReader {
    const stream = this.#stream;
    stream.on("end", () =>
      this.#contain(() => {
        // A stream that was reset also ends, and its close event follows.
        if (stream.aborted || stream.rstCode !== NGHTTP2_NO_ERROR) return;
        this.#hasBody = true;
        body.complete();
        this.#chargeBody();
      }),
    );
    return new FrameReader(stream, {
      frame: (bytes) => {
        this.#owner.turn.spend(1);
        this.#moved += bytes;
        this.#bodyBytes += bytes;
      },
      data: (chunk) => {
        this.#contain(() => body.push(chunk));
        return true;
      },
    });
  }

  pauseBody(): void {
    this.#frames?.pause();
    this.#isBodyPaused = true;
    this.#chargeBody();
  }

  bodyWaits(_body: RequestBodySource, bytes: number): void {
    this.#waitingBodyBytes = bytes;
    this.#chargeBody();
  }

  #chargeBody(): void {
    if (this.#isClosed) return;
    const restBytes = (this.#request.contentLength ?? Number.POSITIVE_INFINITY) - this.#bodyBytes;
    const unseenBytes = this.#isBodyPaused && !this.#hasBody ? Math.max(0, Math.min(WINDOW_BYTES, restBytes)) : 0;
    const bytes = this.#waitingBodyBytes + unseenBytes;
    if (bytes > 0 || this.#backlog !== undefined) this.#openBacklog().requestBytes = bytes;
  }

  resumeBody(): void {
    process.nextTick(flushBody, this);
  }

  flushBody(): void {
    this.#contain(() => {
      if (this.body?.flush() !== true || this.#isClosed) return;
      this.#isBodyPaused = false;
      this.#chargeBody();
      this.#frames?.resume();
    });
  }

  head(status: number, headers: HeaderList): void {
    if (this.#isClosed) return;
    const isFirst = !this.#hasHead;
    this.#hasHead = true;
    this.#sendsBody = this.#request.method !== "HEAD" && status !== 204 && status !== 304;
    if (!headers.has("content-length")) {
      // Watches for a client that stops reading a response of unknown length.
      this.#watch();
      if (isFirst && headers.get("content-type")?.startsWith("text/event-stream")) this.#owner.streams.add(this);
    }
    this.#unsent = { status, headers };
    process.nextTick(flushHead, this);
  }

  flushHead(endStream = false): void {
    const head = this.#unsent;
    if (head === undefined || this.#isClosed || this.#isReset) return;
    this.#unsent = undefined;
    const isWhole = endStream || !this.#sendsBody;
    this.#stream.respond(responseFields(head.status, head.headers), {
      endStream: isWhole,
      // Without this option, closing the stream would end it before the reset, and a truncated body would look
      // complete.
      waitForTrailers: !isWhole,
    });
  }

  write(chunk: Buffer): boolean {
    if (!this.#sendsBody || this.#isClosed || chunk.length === 0) return true;
    this.flushHead();
    this.#moved += chunk.length;
    if (this.#stream.write(chunk)) return true;
    this.#awaitsDrain = true;
    this.#watch();
    this.#chargeResponse();
    return false;
  }

  #chargeResponse(): void {
    this.#openBacklog().responseBytes = this.#stream.writableLength;
  }

  #openBacklog(): Backlog {
    this.#backlog ??= new Backlog(
      this.#owner.waitingBytes,
      () => this.client,
      () => this.destroy(),
    );
    return this.#backlog;
  }

  get client(): string {
    return this.chargedTo?.client ?? addressKey(this.#stream.session?.socket?.remoteAddress);
  }

  end(lastChunk?: Buffer, trailers?: readonly string[]): void {
    if (this.#hasEnded || this.#isClosed) return;
    this.#hasEnded = true;
    this.#trailers = trailers;
    const chunk = this.#sendsBody && lastChunk !== undefined && lastChunk.length > 0 ? lastChunk : undefined;
    this.flushHead(chunk === undefined && (trailers ?? []).length === 0);
    if (this.#isReset) return;
    // The rest of the body is not read, so the client can stop sending (RFC 9113 section 8.1).
    if (!this.#hasBody) this.#stream.once("finish", () => closeStreamLater(this.#stream, NGHTTP2_NO_ERROR));
    if (chunk === undefined) this.#stream.end();
    else this.#stream.end(chunk);
    this.#watch();
    if (this.#stream.writableLength > this.#stream.writableHighWaterMark) this.#chargeResponse();
  }

  #sendTrailers(): void {
    if (!this.#hasEnded || this.#isClosed || this.#isReset) return;
    this.#stream.sendTrailers(trailerFields(this.#request.wantsTrailers ? this.#trailers : undefined));
  }

  destroy(): void {
    this.#cut(NGHTTP2_INTERNAL_ERROR);
  }

  /** Resets the stream because its client uses too much memory. */
  calmDown(): void {
    this.#cut(NGHTTP2_ENHANCE_YOUR_CALM);
  }

  #cut(code: number): void {
    this.#isCut = true;
    closeStreamLater(this.#stream, code);
  }

  /** Called periodically. `isReading` is false if the client has hardly read from the connection since the last call. */
  sweep(isReading: boolean, elapsedMs: number): void {
    const isUnread = this.#hasEnded && this.#stream.writableLength > 0;
    this.#unreadMs = isUnread && !isReading ? this.#unreadMs + elapsedMs : 0;
    if (this.#unreadMs >= UNREAD_MS) this.calmDown();
  }

  finishStream(): void {
    this.end();
  }

  askForBody(): void {
    if (this.#hasBody) return;
    if (this.#mustAskForBody && !this.#hasHead && !this.#isReset) {
      this.#mustAskForBody = false;
      this.#stream.additionalHeaders({ ":status": 100 });
    }
    this.#watch();
  }

  upgrade(_status: number, _headers: HeaderList, backend: Duplex): void {
    backend.destroy();
    this.destroy();
  }

  reject(reply: Reply): void {
    this.head(reply.status, reply.headers);
    this.end(reply.body);
  }

  isUploading(): boolean {
    if (this.#hasBody) return false;
    const hasMoved = this.#moved !== this.#lastMoved;
    this.#lastMoved = this.#moved;
    return hasMoved || this.body?.isDrained === true;
  }

  progress(): number {
    return this.#moved - this.#stream.writableLength;
  }

  isWaiting(): boolean {
    if (this.#awaitsDrain || (this.#hasEnded && this.#stream.writableLength > 0)) return true;
    // A bidirectional gRPC stream may be silent for long.
    return !this.#hasBody && !this.#hasHead && !this.#isGrpc && this.body?.isDrained === true;
  }

  expire(): void {
    const wasStalled = this.#isStalled;
    this.#isStalled = true;
    if (this.#hasHead || this.#hasBody || wasStalled) this.destroy();
    else this.#contain(() => this.onStalled?.());
  }

  #drained(): void {
    if (!this.#awaitsDrain) return;
    this.#awaitsDrain = false;
    if (this.#backlog !== undefined) this.#backlog.responseBytes = this.#stream.writableLength;
    this.onDrain?.();
  }

  #closed(): void {
    if (this.#isClosed) return;
    this.#frames?.flush();
    this.#isClosed = true;
    this.#backlog?.close();
    if (this.#watched !== undefined) this.#owner.idle.remove(this.#watched);
    this.#owner.streams.remove(this);
    const { rstCode } = this.#stream;
    const wasReset = !this.#hasEnded && !this.#isCut;
    const isComplete = this.#hasEnded && rstCode === NGHTTP2_NO_ERROR;
    try {
      this.onClose?.(isComplete);
    } finally {
      if (!this.#hasBody) this.body?.abort();
      this.#owner.streamEnded(this, wasReset);
    }
  }

  /** A reset or malformed stream accepts no frames, although its close event may follow much later. */
  get #isReset(): boolean {
    return this.#stream.destroyed || this.#stream.closed;
  }

  #watch(): void {
    if (this.#watched === undefined && !this.#isClosed) this.#watched = this.#owner.idle.add(this);
  }

  #contain(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#owner.unexpected(error);
    }
  }
}

function flushHead(response: StreamResponse): void {
  response.flushHead();
}

function flushBody(response: StreamResponse): void {
  response.flushBody();
}

function ignore(): void {
  // A close event follows.
}
