/**
 * Handles one HTTP/1.1 client connection with one request at a time, so that pipelined requests do not run
 * concurrently.
 */

import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Linked } from "../../base/linked-list.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { GatewayError } from "../../core/errors.ts";
import { NO_BODY, type RequestBody } from "../../core/exchange.ts";
import { asGatewayError, type Reply } from "../../core/reply.ts";
import { type BodyCarrier, RequestBodySource } from "../../http/h1/request-body.ts";
import { type ParsedRequest, type RequestEvents, RequestParser } from "../../http/h1/request-parser.ts";
import { fairReads, readOpened, socketReader } from "../../http/h1/socket-reads.ts";
import { RequestError } from "../../http/request-head.ts";
import { beginRequest, type RequestOwner, rejectRequest } from "./request-entry.ts";
import {
  KEEP_ALIVE_MS,
  type ResponseCarrier,
  type ResponseOwner,
  ResponseWriter,
  responseHead,
} from "./response-writer.ts";

export interface OpenConnection extends Linked<OpenConnection> {
  /** Called periodically. Closes the connection if the client exceeds its deadline. */
  sweep(): void;
  /** Called when the listener shuts down. Closes an idle connection. HTTP/2 connections finish their streams first. */
  closeIfIdle(): void;
  destroy(): void;
}

export interface JoinedConnections {
  readonly client: Duplex;
  readonly backend: Duplex;
  /** The client sent these bytes after its request. */
  readonly firstBytes: Buffer;
  /** The tunnel's memory is charged to this client. */
  readonly chargedTo: string;
  /** False for a tunnel that CONNECT opened, whose bytes are not WebSocket frames. */
  readonly isWebSocket: boolean;
  closed(): void;
}

/** The listener of a connection. */
export interface ConnectionOwner extends ResponseOwner, RequestOwner, Sweeper {
  /** Returns whether kept-alive connections are closed even if their last response did not announce it. */
  closesKept(): boolean;
  /** Called when the client uses HTTP/2. The socket is paused, and the bytes that were read are unshifted. */
  becomeHttp2(connection: OpenConnection, socket: Socket): void;
  closed(connection: OpenConnection): void;
  join(joined: JoinedConnections): void;
  unexpected(error: unknown, socket: Socket): void;
}

interface Sweeper {
  readonly sweeps: number;
  readonly sweepMs: number;
}

const NEVER = 2 ** 30;

/** Counts sweeps instead of time, because sweeps do not advance while the process is blocked. */
class SweepDeadline {
  readonly #sweeper: Sweeper;
  #last = NEVER;

  constructor(sweeper: Sweeper) {
    this.#sweeper = sweeper;
  }

  get isOver(): boolean {
    return this.#sweeper.sweeps >= this.#last;
  }

  in(ms: number): void {
    const { sweeps, sweepMs } = this.#sweeper;
    // One sweep is added, because the next one may follow immediately.
    this.#last = sweeps + Math.ceil(ms / sweepMs) + 1;
  }

  clear(): void {
    this.#last = NEVER;
  }
}

const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const R = 0x52;

interface Opened {
  readonly isHttp2: boolean;
  readonly bytes: Buffer;
}

/** Detects HTTP/2 with prior knowledge (RFC 9113 section 3.3) from the first bytes of a connection. */
export class Opening {
  #held: Buffer | undefined = undefined;

  /** Returns undefined while both protocols are possible. */
  look(chunk: Buffer): Opened | undefined {
    const bytes = this.#held === undefined ? chunk : Buffer.concat([this.#held, chunk]);
    // Two bytes are enough for nearly all connections.
    if (bytes[0] !== PREFACE[0] || (bytes.length > 1 && bytes[1] !== R)) return { isHttp2: false, bytes };
    const length = Math.min(bytes.length, PREFACE.length);
    if (!bytes.subarray(0, length).equals(PREFACE.subarray(0, length))) return { isHttp2: false, bytes };
    if (length === PREFACE.length) return { isHttp2: true, bytes };
    this.#held = bytes;
    return undefined;
  }
}

/** Receives the events of a client's socket. An exception in a method is passed to `unexpected`. */
interface SocketReceiver {
  received(chunk: Buffer): void;
  receivedEnd(): void;
  drained(): void;
  closed(): void;
  /** Called when a handler threw. The connection must be closed. */
  unexpected(error: unknown): void;
}

const RECEIVER = Symbol("receiver");
const HANDED_OVER = Symbol("handed over");

interface ReceivedSocket extends Socket {
  [RECEIVER]?: SocketReceiver;
  [HANDED_OVER]?: true;
}

/** After a handover, chunks are pushed to the stream for its new owner. */
const reader = socketReader(function (this: ReceivedSocket, chunk) {
  if (this[HANDED_OVER] === true) return this.push(chunk);
  onData.call(this, chunk);
  return true;
});

function listenTo(socket: ReceivedSocket, receiver: SocketReceiver): void {
  socket[RECEIVER] = receiver;
  // A socket whose first bytes were read before, such as a PROXY protocol header, is paused and may hold further bytes.
  const isPaused = socket.readableFlowing === false;
  if (isPaused || !readOpened(socket, reader)) socket.on("data", onData);
  if (isPaused) socket.resume();
  socket.on("end", onEnd);
  socket.on("drain", onDrain);
  socket.on("error", ignore);
  socket.on("close", onClose);
}

/** Lets another owner read and write. The close event is still dispatched. */
function handOver(socket: ReceivedSocket): void {
  socket[HANDED_OVER] = true;
  socket.off("data", onData);
  socket.off("end", onEnd);
  socket.off("drain", onDrain);
}

export function contain<Receiver extends SocketReceiver>(receiver: Receiver, action: (one: Receiver) => void): void {
  try {
    action(receiver);
  } catch (error) {
    receiver.unexpected(error);
  }
}

function onData(this: ReceivedSocket, chunk: Buffer): void {
  const receiver = this[RECEIVER];
  try {
    receiver?.received(chunk);
  } catch (error) {
    receiver?.unexpected(error);
  }
}

function onEnd(this: ReceivedSocket): void {
  const receiver = this[RECEIVER];
  if (receiver) contain(receiver, (one) => one.receivedEnd());
}

function onDrain(this: ReceivedSocket): void {
  const receiver = this[RECEIVER];
  if (receiver) contain(receiver, (one) => one.drained());
}

function onClose(this: ReceivedSocket): void {
  const receiver = this[RECEIVER];
  if (receiver) contain(receiver, (one) => one.closed());
}

function ignore(): void {
  // A close event follows.
}

/** A lingering connection is closed after this time without transferred bytes. */
export const LINGER_SILENCE_MS = 2_000;
/** A lingering connection is closed after this time, even if the client keeps sending. */
const LINGER_MS = 30_000;
const MAX_LINGER_BYTES = 64 * 1024 * 1024;

/**
 * Closes a connection on which the client may still be sending. The gateway closes its side, and reads and discards
 * further input, because closing with unread bytes could reset the connection and lose the last response (RFC 9112
 * section 9.6).
 */
class Linger {
  readonly #socket: Socket;
  readonly #sweepMs: number;
  readonly #mostBytes: number;
  #progress = -1;
  #silentMs = 0;
  #allMs = 0;

  constructor(socket: Socket, sweepMs: number) {
    this.#socket = socket;
    this.#sweepMs = sweepMs;
    this.#mostBytes = socket.bytesRead + MAX_LINGER_BYTES;
    socket.end();
    socket.resume();
    if (socket.readableEnded) socket.destroySoon();
  }

  /** Sent and received bytes count as activity. */
  sweep(): void {
    const socket = this.#socket;
    const progress = socket.bytesRead + socket.bytesWritten - socket.writableLength;
    this.#silentMs = progress === this.#progress ? this.#silentMs + this.#sweepMs : 0;
    this.#progress = progress;
    this.#allMs += this.#sweepMs;
    if (this.#silentMs >= LINGER_SILENCE_MS || this.#allMs >= LINGER_MS) socket.destroy();
  }

  received(): void {
    if (this.#socket.bytesRead > this.#mostBytes) this.#socket.destroy();
  }
}

/** The caller must write the text in latin1. */
function replyText({ body, headers, status }: Reply, isHead: boolean, now: number): string {
  headers.set("content-length", String(body?.length ?? 0));
  const sentBody = isHead ? undefined : body?.toString("latin1");
  return responseHead(status, headers, { isChunked: false, keptSeconds: 0, now }) + (sentBody ?? "");
}

/** WebSocket is the only upgrade that is forwarded. The gateway ignores any other offer. */
export function isWebSocket(request: ParsedRequest): boolean {
  return (
    request.upgrade !== undefined &&
    request.upgrade.toLowerCase() === "websocket" &&
    request.method === "GET" &&
    request.version === "1.1" &&
    request.expects === "nothing" &&
    request.fault === undefined &&
    !request.isChunked &&
    (request.contentLength ?? 0) === 0 &&
    request.keepAlive
  );
}

/** A tunnel begins after the head, so CONNECT must not have a body. */
function isConnect({ version, expects, fault, isChunked, contentLength = 0 }: ParsedRequest): boolean {
  return version === "1.1" && expects === "nothing" && fault === undefined && !isChunked && contentLength === 0;
}

const HEAD = peerInput("client/http1-head");
const FRAMING = peerInput("client/request-framing");

/** The connection stops reading when more than this much data follows the current request. */
const MAX_PIPELINED_BYTES = 16 * 1024;
const EMPTY = Buffer.alloc(0);

/** `lingering` means that the gateway has closed its side and discards further input. */
type State = "waiting" | "busy" | "lingering" | "tunnel" | "closed";

export class ClientConnection implements RequestEvents, BodyCarrier, ResponseCarrier, SocketReceiver, OpenConnection {
  next: OpenConnection | undefined = undefined;
  previous: OpenConnection | undefined = undefined;
  readonly owner: ConnectionOwner;
  readonly #socket: Socket;
  readonly #parser = new RequestParser(HEAD, FRAMING, this);
  #state: State = "waiting";
  readonly #deadline: SweepDeadline;
  /** True if at least one request was served, so that the keep-alive timeout applies. */
  #isKept = false;
  #response: ResponseWriter | undefined = undefined;
  #body: RequestBodySource | undefined = undefined;
  #held: Buffer | undefined = undefined;
  #isConnect = false;
  #opening: Opening | undefined = new Opening();
  #linger: Linger | undefined = undefined;
  #afterLastWrite: ((error?: Error | null) => void) | undefined = undefined;

  constructor(socket: Socket, owner: ConnectionOwner) {
    this.#socket = socket;
    this.owner = owner;
    this.#deadline = new SweepDeadline(owner);
    this.#deadline.in(owner.env.limits.headersTimeoutMs);
    listenTo(socket, this);
  }

  sweep(): void {
    if (this.#linger !== undefined) this.#linger.sweep();
    else if (!this.#deadline.isOver) return;
    else if (this.#state !== "waiting") this.#socket.destroy();
    else if (this.#isKept && this.#parser.isBetween) this.#close();
    else this.#reject(new GatewayError("request_timeout"), this.#parser.partialHead);
  }

  closeIfIdle(): void {
    if (this.#state === "waiting" && this.#isKept && this.#parser.isBetween && this.#held === undefined) this.#close();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  received(chunk: Buffer): void {
    if (this.#opening !== undefined) this.#open(this.#opening, chunk);
    else if (this.#state === "busy" ? this.#parser.isInBody : this.#state === "waiting" && this.#held === undefined)
      this.#feed(chunk);
    else if (this.#linger !== undefined) this.#linger.received();
    else if (this.#state === "busy" || this.#state === "waiting") this.#hold(chunk);
  }

  /** A client that waits for a response must keep its side open. */
  receivedEnd(): void {
    if (this.#state === "waiting" && !this.#parser.isBetween)
      this.#reject(new GatewayError("bad_request"), this.#parser.partialHead);
    else if (this.#state === "busy" && this.#response?.hasEnded === true) this.#response.isLast = true;
    else if (this.#state === "busy" && this.#parser.isInBody && this.#response?.hasHead === false)
      this.#broken(new RequestError("bad", "the body ended early"));
    else if (this.#state === "busy") this.#socket.destroy();
    else this.#socket.destroySoon();
  }

  /** Detects the client's HTTP version from the first bytes. */
  #open(opening: Opening, chunk: Buffer): void {
    const first = opening.look(chunk);
    if (first === undefined) return;
    this.#opening = undefined;
    if (!first.isHttp2 || this.owner.served.listener.http2 === false) {
      this.#feed(first.bytes);
      return;
    }
    this.#handOver();
    this.#socket.pause();
    this.#socket.unshift(first.bytes);
    this.owner.becomeHttp2(this, this.#socket);
  }

  #feed(chunk: Buffer): void {
    const wasBetween = this.#parser.isBetween;
    let next: number;
    try {
      next = this.#parser.push(chunk, 0);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      this.#broken(error);
      return;
    }
    if (next < chunk.length) this.#hold(chunk.subarray(next));
    if (this.#state === "waiting") {
      if (wasBetween && this.#isKept && !this.#parser.isBetween)
        this.#deadline.in(this.owner.env.limits.headersTimeoutMs);
    } else if (this.#state === "busy" && this.#response === undefined && !this.#parser.isInBody) this.#ready();
  }

  #hold(chunk: Buffer): void {
    this.#held = this.#held === undefined ? chunk : Buffer.concat([this.#held, chunk]);
    if (this.#held.length <= MAX_PIPELINED_BYTES) return;
    this.#socket.pause();
    this.#response?.chargeRequest(this.#held.length);
  }

  head(request: ParsedRequest, bytes: Buffer | undefined): void {
    this.#state = "busy";
    this.#deadline.clear();
    this.#isConnect =
      request.method === "CONNECT" && this.owner.served.listener.forwardProxy === true && isConnect(request);
    const response = new ResponseWriter(request, this.#socket, this, this.#isConnect || isWebSocket(request));
    this.#response = response;
    let body: RequestBody = NO_BODY;
    if (bytes !== undefined) body = { kind: "bytes", bytes };
    else if (this.#parser.isInBody) {
      this.#body = new RequestBodySource(this);
      body = { kind: "stream", stream: this.#body, length: request.contentLength, taken: false };
    }
    beginRequest(this.owner, request, body, response, this.#socket);
  }

  data(chunk: Buffer): void {
    this.#body?.push(chunk);
  }

  end(): void {
    this.#body?.complete();
  }

  pauseBody(body: RequestBodySource): void {
    if (body === this.#body) this.#socket.pause();
  }

  resumeBody(body: RequestBodySource): void {
    if (body === this.#body) process.nextTick(flushBody, this, body);
  }

  bodyWaits(body: RequestBodySource, bytes: number): void {
    if (body === this.#body) this.#response?.chargeRequest(bytes);
  }

  flushBody(body: RequestBodySource): void {
    if (body !== this.#body) return;
    if (body.flush() && this.#state === "busy" && this.#held === undefined) this.#socket.resume();
  }

  #broken(error: RequestError): void {
    // If a response is in progress, the client would read a second response as part of it.
    if (this.#response?.hasHead === true) this.#socket.destroy();
    else this.#reject(asGatewayError(error), error.head);
  }

  #reject(error: GatewayError, bytes: Buffer | undefined): void {
    const response = this.#response;
    const rejection = rejectRequest(this.owner, response === undefined ? bytes : undefined, error, this.#socket);
    const isHead = response === undefined ? bytes?.toString("latin1", 0, 5) === "HEAD " : response.isHead;
    this.#socket.write(replyText(rejection.reply, isHead, this.owner.clock.now()), "latin1", (failed) => {
      rejection.settle(!failed);
    });
    response?.close(false);
    this.#close();
  }

  get hasBody(): boolean {
    return !this.#parser.isInBody;
  }

  get isBodyDrained(): boolean {
    return this.#body === undefined || this.#body.isDrained;
  }

  get afterLastWrite(): (error?: Error | null) => void {
    this.#afterLastWrite ??= (error) => {
      if (!error) contain(this, (one) => one.responded());
    };
    return this.#afterLastWrite;
  }

  join(head: string, backend: Duplex, chargedTo: string, closed: () => void): void {
    const firstBytes = this.#held ?? EMPTY;
    this.#handOver();
    this.#socket.write(head, "latin1");
    const isWebSocket = !this.#isConnect;
    this.owner.join({ client: this.#socket, backend, firstBytes, chargedTo, isWebSocket, closed });
  }

  #handOver(): void {
    this.#held = undefined;
    this.#state = "tunnel";
    this.#response = undefined;
    this.#deadline.clear();
    handOver(this.#socket);
  }

  unexpected(error: unknown): void {
    this.owner.unexpected(error, this.#socket);
    this.#socket.destroy();
  }

  drained(): void {
    this.#response?.drained();
  }

  responded(): void {
    const response = this.#response;
    if (response === undefined || !response.hasEnded || this.#state !== "busy") return;
    this.#response = undefined;
    response.close(true);
    this.#isKept = true;
    if (response.isLast) this.#close();
    else if (this.#parser.isInBody) this.#discardBody();
    else this.#ready();
  }

  /** Discards the rest of a small body to reach the next pipelined request. */
  #discardBody(): void {
    this.#body = undefined;
    this.#deadline.in(this.owner.env.limits.headersTimeoutMs);
    this.#socket.resume();
  }

  #ready(): void {
    this.#state = "waiting";
    this.#body = undefined;
    if (this.owner.closesKept() && this.#held === undefined) this.#close();
    else if (this.#held === undefined) {
      this.#deadline.in(KEEP_ALIVE_MS);
      if (this.#socket.isPaused()) this.#socket.resume();
    } else {
      this.#deadline.in(this.owner.env.limits.headersTimeoutMs);
      // Pipelined requests run in another event-loop iteration, so that one client does not delay the others.
      fairReads.runLater(() => readHeld(this));
    }
  }

  readHeld(): void {
    const held = this.#held;
    if (held === undefined || this.#state !== "waiting") return;
    this.#held = undefined;
    this.#feed(held);
    if (this.#held === undefined && this.isBodyDrained && this.#socket.isPaused()) this.#socket.resume();
  }

  /** Closes the gateway's side. The connection ends when the client closes its side or a linger limit is reached. */
  #close(): void {
    this.#state = "lingering";
    this.#parser.stop();
    this.#held = undefined;
    this.#response = undefined;
    const body = this.#body;
    this.#body = undefined;
    body?.abort();
    this.#linger ??= new Linger(this.#socket, this.owner.sweepMs);
  }

  closed(): void {
    const response = this.#response;
    const body = this.#body;
    this.#response = undefined;
    this.#body = undefined;
    this.#held = undefined;
    this.#state = "closed";
    this.#parser.stop();
    this.owner.closed(this);
    // The response is closed before the body, so that the exchange does not report the end of the body as a failure.
    response?.close(false);
    body?.abort();
  }
}

function readHeld(connection: ClientConnection): void {
  contain(connection, (one) => one.readHeld());
}

function flushBody(connection: ClientConnection, body: RequestBodySource): void {
  fairReads.run(() => contain(connection, (one) => one.flushBody(body)));
}
