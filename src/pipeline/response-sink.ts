/**
 * The client's side of one exchange on top of Node's response object: back-pressure, trailers, upgrades, and
 * an honest end: a body that broke off is never closed as if it were whole, and a client that is still sending
 * when it is refused gets to read the refusal.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { GatewayError } from "../core/errors.ts";
import { errorReply, type Reply } from "../core/reply.ts";
import type { ClientSink } from "../core/sink.ts";
import type { Clock } from "../lib/clock.ts";
import type { HeaderList } from "../lib/headers.ts";
import type { IdleConnections, Watched } from "./idle.ts";

/** How long a refused client may go on sending before the connection is cut, so that it can read the answer. */
const LINGER_MS = 1_000;
/** A refused body up to this is simply read to its end, and the connection stays usable. */
const SMALL_BODY_BYTES = 64 * 1024;

export interface SinkOptions {
  readonly draining: boolean;
  readonly expectsContinue: boolean;
  readonly idle: IdleConnections;
  readonly clock: Clock;
  readonly upgrade?: { readonly socket: Duplex; readonly firstBytes: Buffer };
}

export class ResponseSink implements ClientSink, Watched {
  onDrain: (() => void) | undefined = undefined;
  onClose: ((complete: boolean) => void) | undefined = undefined;
  afterClose: (() => void) | undefined = undefined;
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #options: SinkOptions;
  #mustAskForBody: boolean;
  #closed = false;
  #watched = false;

  constructor(req: IncomingMessage, res: ServerResponse, options: SinkOptions) {
    this.#req = req;
    this.#res = res;
    this.#options = options;
    this.#mustAskForBody = options.expectsContinue;
    res.on("close", () => this.#close(res.writableFinished));
    // Without a listener a socket error would be thrown; the close event that follows tells the rest.
    res.on("error", () => undefined);
    req.on("error", () => undefined);
  }

  head(status: number, headers: HeaderList): void {
    const { pairs } = headers;
    if (this.#options.draining || this.#bodyUnread) this.#res.shouldKeepAlive = false;
    this.#res.writeHead(status, pairs);
    if (!headers.has("content-length")) this.#watch();
  }

  write(chunk: Buffer): boolean {
    if (this.#res.write(chunk)) return true;
    this.#watch();
    this.#res.once("drain", () => this.onDrain?.());
    return false;
  }

  end(lastChunk?: Buffer, trailers?: readonly string[]): void {
    if (trailers && trailers.length > 0) this.#res.addTrailers(pairsOf(trailers));
    if (this.#bodyUnread) this.#endAndLinger(lastChunk);
    else if (lastChunk) this.#res.end(lastChunk);
    else this.#res.end();
  }

  destroy(): void {
    this.#res.destroy();
  }

  askForBody(): void {
    if (!this.#mustAskForBody) {
      if (!this.#watched && !this.#req.complete) this.#watch();
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
    client.write(`${head}\r\n`);
    if (asked.firstBytes.length > 0) backend.write(asked.firstBytes);
    joinSockets(client, backend, () => this.#close(true));
  }

  /** An answer before there is an exchange: the head itself was not acceptable. */
  refuse(reply: Reply, id: string): void {
    this.#res.shouldKeepAlive = false;
    reply.headers.set("content-length", String(reply.body?.length ?? 0));
    reply.headers.set("x-request-id", id);
    this.#res.writeHead(reply.status, reply.headers.pairs);
    this.#endAndLinger(reply.body);
  }

  progress(): number {
    const { socket } = this.#req;
    return (socket?.bytesRead ?? 0) + (socket?.bytesWritten ?? 0);
  }

  isWaiting(): boolean {
    return !this.#req.complete || this.#res.writableNeedDrain;
  }

  /** Nothing moved for too long. A client that owes us its body is told so, one that does not read is cut off. */
  expire(): void {
    if (this.#res.headersSent || this.#req.complete) this.destroy();
    else this.refuse(errorReply(new GatewayError("request_timeout")), "-");
  }

  get #bodyUnread(): boolean {
    if (this.#req.complete || this.#options.upgrade) return false;
    const length = Number(this.#req.headers["content-length"] ?? Number.POSITIVE_INFINITY);
    if (this.#mustAskForBody) return true;
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

  #watch(): void {
    if (this.#watched || this.#closed) return;
    this.#watched = true;
    this.#options.idle.add(this);
  }

  #close(complete: boolean): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#watched) this.#options.idle.remove(this);
    this.onClose?.(complete);
    this.afterClose?.();
  }
}

/** Writes an answer onto a socket that has no request object, and ends it. */
export function refuseRawly(socket: Duplex, reply: Reply): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  socket.on("error", () => undefined);
  reply.headers.set("content-length", String(reply.body?.length ?? 0));
  let head = `HTTP/1.1 ${reply.status} ${reply.status === 431 ? "Request Header Fields Too Large" : "Refused"}\r\nconnection: close\r\n`;
  for (let i = 0; i < reply.headers.pairs.length; i += 2)
    head += `${reply.headers.pairs[i]}: ${reply.headers.pairs[i + 1]}\r\n`;
  socket.end(Buffer.concat([Buffer.from(`${head}\r\n`), reply.body ?? Buffer.alloc(0)]));
}

function joinSockets(client: Duplex, backend: Duplex, done: () => void): void {
  let open = 2;
  const closed = (): void => {
    open -= 1;
    if (open === 0) done();
  };
  client.on("error", () => backend.destroy());
  backend.on("error", () => client.destroy());
  client.on("close", () => {
    backend.destroy();
    closed();
  });
  backend.on("close", () => {
    client.destroy();
    closed();
  });
  client.pipe(backend);
  backend.pipe(client);
}

function hasBody(req: IncomingMessage): boolean {
  const length = req.headers["content-length"];
  return req.headers["transfer-encoding"] !== undefined || (length !== undefined && length !== "0");
}

function pairsOf(flat: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let i = 0; i + 1 < flat.length; i += 2) pairs.push([flat[i] as string, flat[i + 1] as string]);
  return pairs;
}
