/**
 * The client's side of one exchange on top of Node's response object: back-pressure, trailers, upgrades, and
 * an honest end: a body that broke off is never closed as if it were whole, and a client that is still sending
 * when it is refused gets to read the refusal.
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Reply } from "../../core/reply.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { HeaderList } from "../../lib/http/headers.ts";
import type { Clock } from "../../lib/process/clock.ts";
import type { ClientConnection } from "./client-connection.ts";
import type { IdleConnections, Watched, WatchedPlace } from "./idle.ts";

/** How long a refused client may go on sending before the connection is cut, so that it can read the answer. */
const LINGER_MS = 1_000;
/** A refused body up to this is simply read to its end, and the connection stays usable. */
const SMALL_BODY_BYTES = 64 * 1024;
/** Up to this, copying a body into a string costs less than a second write. */
const ONE_WRITE_BYTES = 16 * 1024;

/** What frames or routes a message, or changes the client's state, comes too late in a trailer (RFC 9110 section 6.5.1). */
const NO_TRAILERS = new Set([
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "host",
  "keep-alive",
  "set-cookie",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

export interface SinkOptions {
  readonly draining: boolean;
  readonly expectsContinue: boolean;
  readonly idle: IdleConnections;
  readonly clock: Clock;
  readonly connection: ClientConnection;
  /** Answers without an end of their own: ended, not cut, when the listener must go. */
  readonly streams: Set<ResponseSink>;
  readonly upgrade?: UpgradeOffer;
  /** An exception in a callback: it is counted, and the connection is closed. */
  unexpected(socket: Socket, error: unknown): void;
}

/** A request that may become a tunnel. */
export interface UpgradeOffer {
  readonly socket: Duplex;
  readonly firstBytes: Buffer;
  join(client: Duplex, backend: Duplex, firstBytes: Buffer, closed: () => void): void;
}

export class ResponseSink implements ClientSink, Watched {
  onDrain: (() => void) | undefined = undefined;
  onStalled: (() => void) | undefined = undefined;
  onClose: ((complete: boolean) => void) | undefined = undefined;
  afterClose: ((connection: ClientConnection) => void) | undefined = undefined;
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #options: SinkOptions;
  #mustAskForBody: boolean;
  #wrote = false;
  /** The body is chunked, and we write the frames. */
  #isFramed = false;
  #endsWithConnection = false;
  #awaitsDrain = false;
  #isStalled = false;
  #lastBytesRead = 0;
  #closed = false;
  #watched: WatchedPlace | undefined = undefined;

  constructor(req: IncomingMessage, res: ServerResponse, options: SinkOptions) {
    this.#req = req;
    this.#res = res;
    this.#options = options;
    this.#mustAskForBody = options.expectsContinue;
    res.on("close", () => this.#close(res.writableFinished));
    // Without a listener a socket error would be thrown; the close event that follows tells the rest.
    res.on("error", ignore);
  }

  head(status: number, headers: HeaderList): void {
    if (this.#options.draining || this.#bodyUnread) this.#closeAfterwards();
    if (headers.has("content-length")) this.#res.writeHead(status, headers.pairs);
    else {
      this.#headOfUnknownLength(status, headers);
      this.#watch();
      if (headers.get("content-type")?.startsWith("text/event-stream")) this.#options.streams.add(this);
    }
    process.nextTick(flushHead, this);
  }

  /** Node would write three pieces per chunk (RFC 9112 section 7.1); framed here, a small one is a single write. */
  #headOfUnknownLength(status: number, headers: HeaderList): void {
    this.#endsWithConnection = this.#req.httpVersion === "1.0";
    this.#isFramed = !this.#endsWithConnection && status !== 204 && status !== 304;
    if (!this.#isFramed) this.#res.writeHead(status, headers.pairs);
    else {
      this.#res.writeHead(status, [...headers.pairs, "transfer-encoding", "chunked"]);
      this.#res.chunkedEncoding = false;
    }
  }

  /** Node holds the head back until there is body: a stream whose first event is late would look like no answer. */
  flushHead(): void {
    if (!this.#wrote && !this.#closed) this.#res.flushHeaders();
  }

  write(chunk: Buffer): boolean {
    this.#wrote = true;
    if (this.#isFramed ? this.#writeFrame(chunk) : this.#res.write(chunk)) return true;
    this.#watch();
    // Several chunks of one read may meet a full buffer; one wait is enough.
    if (!this.#awaitsDrain) {
      this.#awaitsDrain = true;
      this.#res.once("drain", () => {
        this.#awaitsDrain = false;
        this.#contain(() => this.onDrain?.());
      });
    }
    return false;
  }

  end(lastChunk?: Buffer, trailers?: readonly string[]): void {
    const isFirst = !this.#wrote;
    this.#wrote = true;
    if (this.#isFramed) {
      if (lastChunk) this.#writeFrame(lastChunk);
      const tail = `0\r\n${trailerLines(trailers)}\r\n`;
      if (this.#bodyUnread) this.#endAndLinger(Buffer.from(tail, "latin1"));
      else this.#endInOneWrite(tail);
    } else if (this.#bodyUnread) this.#endAndLinger(lastChunk);
    else if (lastChunk === undefined) this.#res.end();
    else if (lastChunk.length <= ONE_WRITE_BYTES && isFirst) this.#endInOneWrite(lastChunk.toString("latin1"));
    else this.#res.end(lastChunk);
  }

  /**
   * As a string of bytes, head and body become one write; as a buffer they would be two. And Node's `end` with a body
   * adds an empty piece, which takes the slow way through the system: the end follows when the write is out.
   */
  #endInOneWrite(bytes: string): void {
    this.#res.write(bytes, "latin1");
    process.nextTick(endResponse, this.#res);
  }

  destroy(): void {
    const { socket } = this.#res;
    // A body that only the end of the connection ends would look whole after a clean close.
    if (this.#endsWithConnection && socket && !("encrypted" in socket)) socket.resetAndDestroy();
    else this.#res.destroy();
  }

  /** The listener goes: a stream ends as if its source had ended, so that clients come back instead of failing. */
  finishStream(): void {
    // At once: the connection is cut next.
    if (this.#isFramed) this.#res.end("0\r\n\r\n", "latin1");
    else this.#res.end();
  }

  askForBody(): void {
    if (!this.#mustAskForBody) {
      // Most bodies came with the head and are complete when this turn ends: nothing to watch then.
      if (!this.#req.complete) process.nextTick(watchUnlessComplete, this);
      return;
    }
    this.#mustAskForBody = false;
    this.#res.writeContinue();
    this.#watch();
  }

  upgrade(status: number, headers: HeaderList, backend: Duplex): void {
    const asked = this.#options.upgrade;
    if (!asked) {
      backend.destroy();
      this.destroy();
      return;
    }
    const client = asked.socket;
    // 101 is written by hand: Node's response object has no form for it.
    let head = `HTTP/1.1 ${status} Switching Protocols\r\n`;
    for (let i = 0; i < headers.pairs.length; i += 2) head += `${headers.pairs[i]}: ${headers.pairs[i + 1]}\r\n`;
    this.#res.detachSocket(client as never);
    client.write(`${head}\r\n`, "latin1");
    asked.join(client, backend, asked.firstBytes, () => this.#close(true));
  }

  /** An answer before there is an exchange: the head itself was not acceptable. */
  refuse(reply: Reply): void {
    this.#closeAfterwards();
    this.#res.writeHead(reply.status, reply.headers.pairs);
    this.#endAndLinger(reply.body);
  }

  isUploading(): boolean {
    if (this.#req.complete) return false;
    const { bytesRead } = this.#req.socket;
    const hasMoved = bytesRead !== this.#lastBytesRead;
    this.#lastBytesRead = bytesRead;
    return hasMoved || this.#req.readableLength === 0;
  }

  progress(): number {
    const { socket } = this.#req;
    return (socket?.bytesRead ?? 0) + (socket?.bytesWritten ?? 0);
  }

  isWaiting(): boolean {
    // Bytes that wait for us (because the backend does not take them) are not owed by the client.
    if (!this.#req.complete && this.#req.readableLength === 0) return true;
    // Also the last bytes of an answer are owed a reader.
    return this.#awaitsDrain || (this.#res.writableEnded && !this.#res.writableFinished);
  }

  /** Nothing moved for too long. A client that owes us its body is told so, one that does not read is cut off. */
  expire(): void {
    this.#isStalled = true;
    if (this.#res.headersSent || this.#req.complete) this.destroy();
    else this.#contain(() => this.onStalled?.());
  }

  #writeFrame(chunk: Buffer): boolean {
    if (chunk.length === 0) return true;
    const size = `${chunk.length.toString(16)}\r\n`;
    if (chunk.length <= ONE_WRITE_BYTES) return this.#res.write(`${size}${chunk.toString("latin1")}\r\n`, "latin1");
    this.#res.write(size, "latin1");
    this.#res.write(chunk);
    return this.#res.write("\r\n", "latin1");
  }

  #closeAfterwards(): void {
    this.#res.shouldKeepAlive = false;
    this.#options.connection.isClosing = true;
  }

  /** The request asks for another protocol, and may have it. */
  get isUpgrade(): boolean {
    return this.#options.upgrade !== undefined;
  }

  get #bodyUnread(): boolean {
    if (this.#req.complete || this.#options.upgrade) return false;
    const length = Number(this.#req.headers["content-length"] ?? Number.POSITIVE_INFINITY);
    if (this.#mustAskForBody || this.#isStalled) return true;
    return length > SMALL_BODY_BYTES && hasBody(this.#req);
  }

  /**
   * The whole answer is written, but the connection ends only when the client has stopped sending: closing with
   * unread bytes would reset the connection and could take the answer with it.
   */
  #endAndLinger(lastChunk: Buffer | undefined): void {
    if (this.#req.complete || !hasBody(this.#req)) {
      this.#res.end(lastChunk);
      return;
    }
    if (lastChunk) this.#res.write(lastChunk);
    else this.#res.flushHeaders();
    let ended = false;
    const end = (): void => {
      if (ended) return;
      ended = true;
      timer.cancel();
      this.#res.end();
    };
    const timer = this.#options.clock.after(LINGER_MS, end);
    this.#req.once("end", end);
    this.#req.once("close", end);
    this.#req.resume();
  }

  watchUnlessComplete(): void {
    if (!this.#req.complete) this.#watch();
  }

  #watch(): void {
    if (this.#watched !== undefined || this.#closed) return;
    this.#watched = this.#options.idle.add(this);
  }

  #close(complete: boolean): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#watched !== undefined) this.#options.idle.remove(this.#watched);
    this.#options.streams.delete(this);
    if (this.onClose !== undefined) this.#contain(() => this.onClose?.(complete));
    this.#contain(() => this.afterClose?.(this.#options.connection));
  }

  #contain(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#options.unexpected(this.#options.connection.socket, error);
    }
  }
}

function endResponse(res: ServerResponse): void {
  res.end();
}

function flushHead(sink: ResponseSink): void {
  sink.flushHead();
}

function watchUnlessComplete(sink: ResponseSink): void {
  sink.watchUnlessComplete();
}

function ignore(): void {
  // The close event that follows says what there is to say.
}

/** Writes an answer onto a socket that has no request object, and ends it, also if the client does not. */
export function refuseRawly(socket: Socket, reply: Reply, clock: Clock): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  socket.on("error", ignore);
  reply.headers.set("content-length", String(reply.body?.length ?? 0));
  let head = `HTTP/1.1 ${reply.status} ${STATUS_CODES[reply.status]}\r\nconnection: close\r\n`;
  for (let i = 0; i < reply.headers.pairs.length; i += 2)
    head += `${reply.headers.pairs[i]}: ${reply.headers.pairs[i + 1]}\r\n`;
  socket.write(Buffer.concat([Buffer.from(`${head}\r\n`), reply.body ?? Buffer.alloc(0)]));
  endRawly(socket, clock);
}

/** Ends our side, reads what the client still sends so that it can read the answer, and closes soon, also if it does not. */
export function endRawly(socket: Socket, clock: Clock): void {
  const timer = clock.after(LINGER_MS, () => socket.destroy());
  socket.once("close", () => timer.cancel());
  socket.once("end", () => socket.destroySoon());
  socket.resume();
  socket.end();
}

function hasBody(req: IncomingMessage): boolean {
  const length = req.headers["content-length"];
  return req.headers["transfer-encoding"] !== undefined || (length !== undefined && length !== "0");
}

function trailerLines(flat: readonly string[] | undefined): string {
  let lines = "";
  if (flat === undefined) return lines;
  for (let i = 0; i + 1 < flat.length; i += 2) {
    if (!NO_TRAILERS.has(flat[i] as string)) lines += `${flat[i]}: ${flat[i + 1]}\r\n`;
  }
  return lines;
}
