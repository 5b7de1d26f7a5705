/**
 * Writes the response of one exchange to an HTTP/1.1 client connection with backpressure, trailers, and upgrades.
 */

import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Clock } from "../../base/clock.ts";
import { isHeaderName } from "../../base/header-names.ts";
import type { Linked, LinkedList } from "../../base/linked-list.ts";
import type { StreamPool } from "../../base/memory-budget.ts";
import type { Reply } from "../../core/reply.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { ParsedRequest } from "../../http/h1/request-parser.ts";
import { MESSAGE_HEADERS } from "../../http/header-rules.ts";
import { type HeaderList, isHeaderValue } from "../../http/headers.ts";
import { addressKey, Backlog, type ChargedClient } from "./backlog.ts";
import type { IdleConnections, Watched, WatchedPlace } from "./idle.ts";

/** A trailer must not frame or route a message or change the client's state (RFC 9110 section 6.5.1). */
const NO_TRAILERS: ReadonlySet<string> = new Set([
  ...MESSAGE_HEADERS,
  "content-encoding",
  "content-type",
  "host",
  "set-cookie",
]);

const STATUS_LINES: string[] = [];

interface HeadOptions {
  readonly isChunked: boolean;
  /** The connection is kept alive for this time. The value is 0 if it is closed after this response. */
  readonly keptSeconds: number;
  /** The time is in milliseconds since the epoch. */
  readonly now: number;
}

/**
 * Replaces `transfer-encoding` and the connection headers. Throws a TypeError for an invalid name or value, unless the
 * list is marked as safe.
 */
export function responseHead(status: number, headers: HeaderList, options: HeadOptions): string {
  let text = statusLine(status);
  let hasDate = false;
  const { pairs, isSafe } = headers;
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    if (name === "connection" || name === "keep-alive" || name === "transfer-encoding") continue;
    if (name === "date") hasDate = true;
    text += isSafe ? `${name}: ${pairs[i + 1]}\r\n` : headerLine(name, pairs[i + 1] as string);
  }
  if (!hasDate) text += dateLine(options.now);
  if (options.isChunked) text += "transfer-encoding: chunked\r\n";
  return options.keptSeconds === 0
    ? `${text}connection: close\r\n\r\n`
    : `${text}connection: keep-alive\r\nkeep-alive: timeout=${options.keptSeconds}\r\n\r\n`;
}

function upgradeHead(status: number, headers: HeaderList): string {
  let text = statusLine(status);
  for (let i = 0; i < headers.pairs.length; i += 2)
    text += headerLine(headers.pairs[i] as string, headers.pairs[i + 1] as string);
  return `${text}\r\n`;
}

export function trailerLines(flat: readonly string[] | undefined): string {
  let lines = "";
  if (flat === undefined) return lines;
  for (let i = 0; i + 1 < flat.length; i += 2) {
    if (!NO_TRAILERS.has(flat[i] as string)) lines += headerLine(flat[i] as string, flat[i + 1] as string);
  }
  return lines;
}

function headerLine(name: string, value: string): string {
  if (!isHeaderName(name)) throw new TypeError("a response header has an invalid name");
  if (!isHeaderValue(value)) throw new TypeError(`the response header ${name} has an invalid character`);
  return `${name}: ${value}\r\n`;
}

function statusLine(status: number): string {
  STATUS_LINES[status] ??= `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Unknown"}\r\n`;
  return STATUS_LINES[status];
}

let dateSecond = -1;
let dateText = "";

function dateLine(now: number): string {
  const second = Math.floor(now / 1000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateText = `date: ${new Date(second * 1000).toUTCString()}\r\n`;
  }
  return dateText;
}

/** Writes a large chunk without copying it. Returns false if the socket's write buffer is full. */
function writeAround(
  socket: Socket,
  before: string,
  chunk: Buffer,
  after: string,
  written: ((error?: Error | null) => void) | undefined,
): boolean {
  socket.cork();
  if (before !== "") socket.write(before, "latin1");
  const hasRoom = after === "" ? socket.write(chunk, written) : socket.write(chunk);
  if (after !== "") socket.write(after, "latin1", written);
  socket.uncork();
  return hasRoom;
}

export const KEEP_ALIVE_MS = 65_000;
/** If an unread body is larger, the connection is closed after the response. */
const SMALL_BODY_BYTES = 64 * 1024;
/** Chunks up to this size are joined with the text around them into one write. */
const ONE_WRITE_BYTES = 16 * 1024;

const CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n";

export interface ResponseCarrier {
  readonly owner: ResponseOwner;
  /** True if the request body has arrived completely. */
  readonly hasBody: boolean;
  /** True if all received bytes of the request body have been read. */
  readonly isBodyDrained: boolean;
  readonly afterLastWrite: (error?: Error | null) => void;
  /** The tunnel's memory is charged to the client `chargedTo`. */
  join(head: string, backend: Duplex, chargedTo: string, closed: () => void): void;
  unexpected(error: unknown): void;
}

export interface OpenEndedResponse extends Linked<OpenEndedResponse> {
  finishStream(): void;
}

/** All connections of a listener share this state. */
export interface ResponseOwner {
  readonly clock: Clock;
  readonly idle: IdleConnections;
  /** Bytes that wait in buffers are charged to this pool. */
  readonly waitingBytes: StreamPool;
  /** These responses have no defined end, so they are ended cleanly when the listener shuts down. */
  readonly streams: LinkedList<OpenEndedResponse>;
  /** Returns whether responses close their connections, because the listener shuts down or memory is short. */
  isDraining(): boolean;
  /** Called once per response, after the exchange has been notified of the end. */
  ended(): void;
}

export class ResponseWriter implements ClientSink, Watched, OpenEndedResponse {
  next: OpenEndedResponse | undefined = undefined;
  previous: OpenEndedResponse | undefined = undefined;
  onDrain: (() => void) | undefined = undefined;
  onStalled: (() => void) | undefined = undefined;
  onClose: ((complete: boolean) => void) | undefined = undefined;
  chargedTo: ChargedClient | undefined = undefined;
  hasEnded = false;
  /** True if the connection is closed after this response. */
  isLast: boolean;
  readonly isUpgrade: boolean;
  readonly isBeyondLimit = false;
  readonly #request: ParsedRequest;
  readonly #socket: Socket;
  readonly #carrier: ResponseCarrier;
  /** Holds the head and small chunks of the body until the next tick at the latest. */
  #unsent = "";
  #flushesLater = false;
  #hasHead = false;
  #mustAskForBody: boolean;
  #sendsBody = true;
  #isFramed = false;
  #endsWithConnection = false;
  #awaitsDrain = false;
  #isStalled = false;
  #isClosed = false;
  #lastBytesRead = 0;
  #watched: WatchedPlace | undefined = undefined;
  #backlog: Backlog | undefined = undefined;

  constructor(request: ParsedRequest, socket: Socket, carrier: ResponseCarrier, isUpgrade: boolean) {
    this.#request = request;
    this.#socket = socket;
    this.#carrier = carrier;
    this.#mustAskForBody = request.expects !== "nothing";
    this.isUpgrade = isUpgrade;
    this.isLast = isUpgrade || !request.keepAlive || request.fault !== undefined;
  }

  get hasHead(): boolean {
    return this.#hasHead;
  }

  get isHead(): boolean {
    return this.#request.method === "HEAD";
  }

  head(status: number, headers: HeaderList): void {
    const isOld = this.#request.version === "1.0";
    const hasLength = headers.has("content-length");
    this.#sendsBody = !this.isHead && status !== 204 && status !== 304;
    this.#endsWithConnection = !hasLength && isOld && this.#sendsBody;
    this.#isFramed = !hasLength && !isOld && status !== 204 && status !== 304;
    if (this.#carrier.owner.isDraining() || this.#isBodyUnread || this.#endsWithConnection) this.isLast = true;
    const text = responseHead(status, headers, {
      isChunked: this.#isFramed,
      keptSeconds: this.isLast ? 0 : KEEP_ALIVE_MS / 1000,
      now: this.#carrier.owner.clock.now(),
    });
    if (!hasLength && !this.#hasHead && !this.#isClosed) {
      // Watches for a client that stops reading a response of unknown length.
      this.#watch();
      if (headers.get("content-type")?.startsWith("text/event-stream")) this.#carrier.owner.streams.add(this);
    }
    this.#hasHead = true;
    // The head is delayed to join it with a body that follows in the same tick.
    this.#sendLater(text);
  }

  write(chunk: Buffer): boolean {
    if (!this.#sendsBody || this.#isClosed || chunk.length === 0) return true;
    const size = this.#isFramed ? `${chunk.length.toString(16)}\r\n` : "";
    const after = this.#isFramed ? "\r\n" : "";
    let hasRoom: boolean;
    if (chunk.length > ONE_WRITE_BYTES)
      hasRoom = writeAround(this.#socket, this.#takeUnsent() + size, chunk, after, undefined);
    else hasRoom = this.#sendLater(size + chunk.toString("latin1") + after);
    return hasRoom || this.#awaitDrain();
  }

  #awaitDrain(): false {
    this.#awaitsDrain = true;
    this.#watch();
    this.#chargeResponse();
    return false;
  }

  #chargeResponse(): void {
    this.#openBacklog().responseBytes = this.#socket.writableLength;
  }

  chargeRequest(bytes: number): void {
    if (!this.#isClosed) this.#openBacklog().requestBytes = bytes;
  }

  #openBacklog(): Backlog {
    this.#backlog ??= new Backlog(
      this.#carrier.owner.waitingBytes,
      () => this.#client,
      () => this.destroy(),
    );
    return this.#backlog;
  }

  get #client(): string {
    return this.chargedTo?.client ?? addressKey(this.#socket.remoteAddress);
  }

  /** Joins the small writes of one tick. */
  #sendLater(text: string): boolean {
    this.#unsent += text;
    if (this.#unsent.length > ONE_WRITE_BYTES) return this.#socket.write(this.#takeUnsent(), "latin1");
    if (!this.#flushesLater) {
      this.#flushesLater = true;
      process.nextTick(flush, this);
    }
    return !this.#socket.writableNeedDrain;
  }

  flush(): void {
    this.#flushesLater = false;
    if (this.#unsent !== "" && !this.#isClosed) this.#socket.write(this.#takeUnsent(), "latin1");
  }

  end(lastChunk?: Buffer, trailers?: readonly string[]): void {
    if (this.hasEnded || this.#isClosed) return;
    this.hasEnded = true;
    const chunk = this.#sendsBody && lastChunk !== undefined && lastChunk.length > 0 ? lastChunk : undefined;
    let before = this.#takeUnsent();
    let after = "";
    if (this.#isFramed && this.#sendsBody) {
      if (chunk) before += `${chunk.length.toString(16)}\r\n`;
      after = `${chunk ? "\r\n" : ""}0\r\n${trailerLines(trailers)}\r\n`;
    }
    const { afterLastWrite } = this.#carrier;
    if (chunk === undefined) this.#socket.write(before + after, "latin1", afterLastWrite);
    else if (chunk.length > ONE_WRITE_BYTES) writeAround(this.#socket, before, chunk, after, afterLastWrite);
    else this.#socket.write(before + chunk.toString("latin1") + after, "latin1", afterLastWrite);
    // The client must also read the last bytes, so the response is still watched.
    const { writableLength } = this.#socket;
    if (writableLength === 0) return;
    this.#watch();
    if (writableLength > ONE_WRITE_BYTES) this.#chargeResponse();
  }

  destroy(): void {
    // A body that is delimited by the end of the connection would look complete after a clean close.
    if (this.#endsWithConnection && !("encrypted" in this.#socket)) this.#socket.resetAndDestroy();
    else this.#socket.destroy();
  }

  finishStream(): void {
    this.end();
  }

  askForBody(): void {
    if (this.#mustAskForBody) {
      this.#mustAskForBody = false;
      if (this.#carrier.hasBody) return;
      this.#socket.write(CONTINUE, "latin1");
      this.#watch();
    } else if (!this.#carrier.hasBody) process.nextTick(watchUnlessComplete, this);
  }

  watchUnlessComplete(): void {
    // Most bodies arrive with or right after the head, and need no watching.
    if (!this.#carrier.hasBody) this.#watch();
  }

  upgrade(status: number, headers: HeaderList, backend: Duplex): void {
    if (!this.isUpgrade || this.#isClosed) {
      backend.destroy();
      this.destroy();
      return;
    }
    this.#carrier.join(upgradeHead(status, headers), backend, this.#client, () => this.close(true));
  }

  reject(reply: Reply): void {
    this.isLast = true;
    this.head(reply.status, reply.headers);
    this.end(reply.body);
  }

  isUploading(): boolean {
    if (this.#carrier.hasBody) return false;
    const { bytesRead } = this.#socket;
    const hasMoved = bytesRead !== this.#lastBytesRead;
    this.#lastBytesRead = bytesRead;
    return hasMoved || this.#carrier.isBodyDrained;
  }

  progress(): number {
    return this.#socket.bytesRead + this.#socket.bytesWritten;
  }

  isWaiting(): boolean {
    // If received bytes wait for the backend, the client is not the cause of the delay.
    if (!this.#carrier.hasBody && this.#carrier.isBodyDrained) return true;
    return this.#awaitsDrain || (this.hasEnded && this.#socket.writableLength > 0);
  }

  expire(): void {
    this.#isStalled = true;
    if (this.#hasHead || this.#carrier.hasBody) this.destroy();
    else this.#contain(this.onStalled);
  }

  drained(): void {
    if (!this.#awaitsDrain) return;
    this.#awaitsDrain = false;
    if (this.#backlog !== undefined) this.#backlog.responseBytes = this.#socket.writableLength;
    this.#contain(this.onDrain);
  }

  close(complete: boolean): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#backlog?.close();
    if (this.#watched !== undefined) this.#carrier.owner.idle.remove(this.#watched);
    this.#carrier.owner.streams.remove(this);
    try {
      this.onClose?.(complete);
    } catch (error) {
      this.#carrier.unexpected(error);
    }
    this.#carrier.owner.ended();
  }

  get #isBodyUnread(): boolean {
    if (this.#carrier.hasBody || this.isUpgrade) return false;
    if (this.#mustAskForBody || this.#isStalled) return true;
    return (this.#request.contentLength ?? Number.POSITIVE_INFINITY) > SMALL_BODY_BYTES;
  }

  #takeUnsent(): string {
    const text = this.#unsent;
    this.#unsent = "";
    return text;
  }

  #watch(): void {
    if (this.#watched === undefined && !this.#isClosed) this.#watched = this.#carrier.owner.idle.add(this);
  }

  #contain(action: (() => void) | undefined): void {
    try {
      action?.();
    } catch (error) {
      this.#carrier.unexpected(error);
    }
  }
}

function flush(response: ResponseWriter): void {
  response.flush();
}

function watchUnlessComplete(response: ResponseWriter): void {
  response.watchUnlessComplete();
}
