/**
 * Handles one connection to a server, with one request at a time: opens the socket, plain or with TLS, writes requests,
 * and passes their responses on.
 */

import { connect as connectTcp, isIP, type LookupFunction, Socket } from "node:net";
import type { Writable } from "node:stream";
import { connect as connectTls } from "node:tls";
import type { Clock } from "../../base/clock.ts";
import { contain, surface } from "../../base/errors.ts";
import { fileDescriptors } from "../../base/file-descriptors.ts";
import { isHeaderName } from "../../base/header-names.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { BodyStream } from "../body.ts";
import { namesChecked } from "../certificates.ts";
import { type HeaderList, isHeaderValue } from "../headers.ts";
import { type Carrier, HttpAttempt } from "../http-attempt.ts";
import {
  CONNECT_TIMEOUT_MS,
  type HealthObserver,
  type HttpCall,
  HttpClientError,
  type HttpClientErrorKind,
  type HttpResponseReceiver,
  type HttpTarget,
  type OutgoingRequest,
} from "../http-client.ts";
import { type ParsedHead, type ParserEvents, ResponseError, ResponseParser } from "./response-parser.ts";
import { copied, fairReads, type Received, readConnecting, readOptions } from "./socket-reads.ts";

const METHOD = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const PATH = /^[\x21-\x7e\x80-\xff]+$/;

type BodyFraming =
  | { readonly kind: "none" }
  | { readonly kind: "length"; readonly length: number }
  | { readonly kind: "chunked" };

export function requestHead(
  method: string,
  path: string,
  headers: HeaderList,
  framing: BodyFraming,
  upgrade: string | undefined,
): string {
  if (!METHOD.test(method)) throw new HttpClientError("request", "not a valid method");
  if (!PATH.test(path)) throw new HttpClientError("request", "not a valid request target");
  let head = `${method} ${path} HTTP/1.1\r\n`;
  const { pairs, isSafe } = headers;
  for (let i = 0; i < pairs.length; i += 2) {
    const name = pairs[i] as string;
    // The framing headers of this connection are set below.
    if (name === "content-length" || name === "transfer-encoding" || name === "connection") continue;
    const value = pairs[i + 1] as string;
    if (!isSafe && !isHeaderName(name)) throw new HttpClientError("request", "a header has no valid name");
    if (!isSafe && !isHeaderValue(value))
      throw new HttpClientError("request", `the header ${name} has a control character`);
    head += `${name}: ${value}\r\n`;
  }
  if (framing.kind === "length") head += `content-length: ${framing.length}\r\n`;
  else if (framing.kind === "chunked") head += "transfer-encoding: chunked\r\n";
  head +=
    upgrade === undefined ? "connection: keep-alive\r\n\r\n" : `connection: upgrade\r\nupgrade: ${upgrade}\r\n\r\n`;
  return head;
}

function framingOf({ method, headers, body }: OutgoingRequest): BodyFraming {
  if (Buffer.isBuffer(body)) return { kind: "length", length: body.length };
  if (body === undefined)
    return method === "POST" || method === "PUT" || method === "PATCH"
      ? { kind: "length", length: 0 }
      : { kind: "none" };
  const length = headers.get("content-length");
  return length === undefined ? { kind: "chunked" } : { kind: "length", length: Number(length) };
}

/**
 * Returns the header lines of the HTTP/1.1 request, alternating names and values. If the request cannot be sent, its
 * own headers are returned.
 */
export function writtenHeaders(request: OutgoingRequest): readonly string[] {
  const { method, path, headers, upgrade } = request;
  try {
    return requestHead(method, path, headers, framingOf(request), upgrade)
      .split("\r\n")
      .slice(1, -2)
      .flatMap((line) => {
        const colon = line.indexOf(": ");
        return [line.slice(0, colon), line.slice(colon + 2)];
      });
  } catch (error) {
    if (!(error instanceof HttpClientError)) throw error;
    return headers.pairs;
  }
}

/**
 * The gateway offers `protocols` by ALPN. `received` replaces `data` events. `others` is the number of connections that
 * the target has.
 */
export function openSocket(
  { protocol, host, port, socketPath, tls, egress }: HttpTarget,
  resolve: LookupFunction,
  protocols: readonly string[],
  others: number,
  received?: Received,
): Socket {
  const fault = egress.fault({ host, socketPath }) ?? fileDescriptors.connectionFault(others);
  if (fault) return new Socket().destroy(fault);
  const lookup = egress.lookup(resolve);
  const at = socketPath === undefined ? { host, port, lookup } : { path: socketPath };
  const reading = readOptions(received);
  const socket =
    protocol === "http"
      ? connectTcp({ ...at, noDelay: true, ...reading })
      : connectTls({
          ...at,
          ...reading,
          ALPNProtocols: [...protocols],
          ...(isIP(host) === 0 ? { servername: host } : {}),
          ...(tls?.servername === undefined ? {} : { servername: tls.servername }),
          ...(tls?.ca === undefined ? {} : { ca: tls.ca }),
          ...(tls?.cert === undefined ? {} : { cert: tls.cert }),
          ...(tls?.key === undefined ? {} : { key: tls.key }),
          ...(tls?.insecure === true ? { rejectUnauthorized: false } : {}),
          ...(tls?.names === undefined ? {} : { checkServerIdentity: namesChecked(tls.names) }),
        });
  if (received) readConnecting(socket, received, reading);
  countConnecting(socket, socketPath === undefined && isIP(host) === 0);
  return socket;
}

/** The descriptor is assigned after the name is resolved, or in the next tick. */
function countConnecting(socket: Socket, isNamed: boolean): void {
  let assigned: (() => void) | undefined = fileDescriptors.connecting();
  const over = (): void => {
    assigned?.();
    assigned = undefined;
  };
  if (!isNamed) {
    process.nextTick(over);
    return;
  }
  socket.once("lookup", over);
  socket.once("close", over);
}

/** A connection to a name with several addresses may fail with one error per address. The first error is sufficient. */
export function describeSocketError(error: Error & { code?: string; errors?: Error[] }): string {
  const first = error.message === "" && error.errors?.[0] ? error.errors[0] : error;
  if (PLAIN_SERVER_CODES.has(error.code ?? ""))
    return "the server responds without TLS: use http:// instead of https://";
  return first.message === "" ? (error.code ?? "connection failed") : first.message;
}

/** OpenSSL reports these errors if the bytes of the server are not a TLS record. */
const PLAIN_SERVER_CODES: ReadonlySet<string> = new Set([
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
  "ERR_SSL_HTTP_REQUEST",
]);

/** Buffered bodies and framed chunks up to this size are copied into one write with the text around them. */
const ONE_WRITE_BYTES = 16 * 1024;

interface BodyWriter {
  stop(): void;
}

/**
 * Writes a request body while it arrives, with backpressure from the backend. The body is chunked if `length` is
 * undefined. Otherwise exactly `length` bytes must arrive.
 */
export function writeBody(
  body: BodyStream,
  socket: Writable,
  length: number | undefined,
  done: (error: Error | undefined) => void,
): BodyWriter {
  let written = 0;
  let isOver = false;
  /**
   * Holds small framed chunks until the next tick, so that thousands of tiny chunks do not become as many entries in
   * the socket's queue.
   */
  let unsent = "";

  function finish(error: Error | undefined): void {
    if (isOver) return;
    flush();
    isOver = true;
    body.off("data", onData);
    body.off("end", onEnd);
    body.off("error", onError);
    body.off("close", onClose);
    // While the socket has not drained, the last bytes stay charged to the client until they are sent.
    if (!socket.writableNeedDrain) socket.off("drain", onDrain);
    else body.queued?.(socket.writableLength);
    done(error);
  }

  function flush(): void {
    if (unsent === "") return;
    const text = unsent;
    unsent = "";
    socket.write(text, "latin1");
  }

  function flushLater(): void {
    if (isOver) return;
    flush();
    pauseIfFull();
  }

  function pauseIfFull(): void {
    if (!socket.writableNeedDrain) return;
    body.pause();
    body.queued?.(socket.writableLength);
  }

  function onData(chunk: Buffer): void {
    written += chunk.length;
    if (length !== undefined && written > length) {
      finish(new Error("the body is longer than its content-length"));
      return;
    }
    if (chunk.length === 0) return;
    if (length !== undefined) socket.write(chunk);
    else if (chunk.length <= ONE_WRITE_BYTES) {
      if (unsent === "") process.nextTick(flushLater);
      unsent += `${chunk.length.toString(16)}\r\n${chunk.toString("latin1")}\r\n`;
      if (unsent.length > ONE_WRITE_BYTES) flush();
    } else {
      socket.cork();
      socket.write(`${unsent}${chunk.length.toString(16)}\r\n`, "latin1");
      unsent = "";
      socket.write(chunk);
      socket.write("\r\n", "latin1");
      process.nextTick(uncork, socket);
    }
    pauseIfFull();
  }

  function onDrain(): void {
    body.queued?.(0);
    if (isOver) socket.off("drain", onDrain);
    else body.resume();
  }

  function onEnd(): void {
    if (isOver) return;
    if (length !== undefined && written !== length) finish(new Error("the body is shorter than its content-length"));
    else {
      if (length === undefined) unsent += "0\r\n\r\n";
      finish(undefined);
    }
  }

  function onError(error: Error): void {
    finish(error);
  }

  function onClose(): void {
    finish(new Error("the client's connection closed before its body was complete"));
  }

  body.on("data", onData);
  body.on("end", onEnd);
  body.on("error", onError);
  body.on("close", onClose);
  socket.on("drain", onDrain);
  // The `end` event may already have been emitted. The call is deferred, because the caller must have the writer
  // before `done` is called.
  if (body.readableEnded) process.nextTick(onEnd);
  else if (body.destroyed) process.nextTick(onClose);
  return {
    stop() {
      if (isOver) return;
      finish(undefined);
      body.resume();
    },
  };
}

function uncork(socket: Writable): void {
  socket.uncork();
}

const HEAD = peerInput("backend/http1-head");
const FRAMING = peerInput("backend/response-framing");

export interface ConnectionPool {
  readonly clock: Clock;
  readonly lookup: LookupFunction;
  free(connection: Connection): void;
  /** Called once, when the connection cannot be used again. */
  gone(connection: Connection): void;
}

export class Connection implements ParserEvents, Carrier {
  idleSinceMs = 0;
  /** Contains the keep-alive timeout of the server's first response, or undefined if the response had none. */
  serverKeepsMs: number | undefined = undefined;
  readonly #owner: ConnectionPool;
  readonly #parser = new ResponseParser(HEAD, FRAMING, this);
  readonly #socket: Socket;
  /** Calls from the handle of any other attempt are ignored, because they belong to an earlier request. */
  #attempt: HttpAttempt | undefined = undefined;
  /**
   * True if the response has ended. After all bytes of the same read have been parsed, `#release` decides whether the
   * connection is free.
   */
  #isComplete = false;
  #pending: OutgoingRequest | undefined = undefined;
  #bodyWriter: BodyWriter | undefined = undefined;
  #isConnected = false;
  #isGone = false;
  #isUpgraded = false;
  #served = 0;
  #answering = false;
  #keepAlive = true;

  /** `others` is the number of connections that the target has. */
  constructor(target: HttpTarget, owner: ConnectionPool, others: number) {
    this.#owner = owner;
    this.#socket = openSocket(target, owner.lookup, ["http/1.1"], others, (bytes) => this.#received(bytes));
    const { connectTimeoutMs = CONNECT_TIMEOUT_MS } = target;
    const timer = owner.clock.after(connectTimeoutMs, () =>
      this.#fail("connect-timeout", `no connection within ${connectTimeoutMs} ms`),
    );
    const giveUp = (): void => this.#fail("response", "the connection was given up");
    this.#socket.once(target.protocol === "https" ? "secureConnect" : "connect", () => {
      timer.cancel();
      this.#isConnected = true;
      contain(() => this.#pending && this.#write(this.#pending), giveUp);
    });
    this.#socket.on("error", (error) =>
      contain(() => this.#fail(this.#faultKind(), describeSocketError(error), error), giveUp),
    );
    this.#socket.on("end", () => contain(() => this.#onEnd(), giveUp));
    this.#socket.on("close", () => {
      timer.cancel();
      contain(() => this.#fail(this.#faultKind(), "the connection was closed"), giveUp);
    });
  }

  send(request: OutgoingRequest, receiver: HttpResponseReceiver, health?: HealthObserver): HttpCall {
    const attempt = new HttpAttempt(this, receiver, health);
    this.#attempt = attempt;
    this.#isComplete = false;
    if (this.#isConnected) this.#write(request);
    else this.#pending = request;
    return attempt;
  }

  /** Aborts the request. The connection cannot be reused, because the response may still arrive. */
  stop(attempt: HttpAttempt): void {
    if (attempt !== this.#attempt) return;
    this.#attempt = undefined;
    this.#retire();
  }

  proceed(attempt: HttpAttempt): void {
    fairReads.run(() => {
      if (attempt === this.#attempt && !this.#isGone) this.#socket.resume();
    });
  }

  close(): void {
    this.#retire();
  }

  head(head: ParsedHead): void {
    this.#answering = true;
    this.#keepAlive = head.keepAlive;
    // Servers usually send the same value every time, so it is read once per connection.
    if (this.#served === 0) this.serverKeepsMs = keptMs(head.headers.get("keep-alive"));
    this.#attempt?.head(head.status, head.headers);
  }

  data(chunk: Buffer): void {
    if (this.#attempt?.data(chunk) === false && !this.#isGone) this.#socket.pause();
  }

  end(trailers: string[]): void {
    const attempt = this.#attempt;
    this.#attempt = undefined;
    this.#answering = false;
    this.#isComplete = true;
    attempt?.end(trailers);
  }

  upgrade(head: ParsedHead, rest: Buffer): void {
    const attempt = this.#attempt;
    this.#attempt = undefined;
    this.#isGone = true;
    this.#isUpgraded = true;
    this.#owner.gone(this);
    this.#socket.removeAllListeners();
    // The new owner of the socket may not attach an error listener.
    this.#socket.on("error", ignore);
    this.#socket.pause();
    if (rest.length > 0) this.#socket.unshift(rest);
    if (attempt) attempt.upgraded(head.status, head.headers, this.#socket);
    else this.#socket.destroy();
  }

  #write(request: OutgoingRequest): void {
    this.#pending = undefined;
    const { method, path, headers, body, upgrade } = request;
    const framing = framingOf(request);
    let text: string;
    try {
      text = requestHead(method, path, headers, framing, upgrade);
    } catch (error) {
      // The failure is deferred, because the caller must have the attempt before it fails.
      process.nextTick(() => this.#fail("request", (error as Error).message, error as Error));
      return;
    }
    if (upgrade === undefined) this.#parser.expect(method);
    else this.#parser.expect(method, { protocol: upgrade, key: headers.get("sec-websocket-key") });
    const socket = this.#socket;
    if (body === undefined) socket.write(text, "latin1");
    else if (Buffer.isBuffer(body)) {
      if (body.length <= ONE_WRITE_BYTES) socket.write(text + body.toString("latin1"), "latin1");
      else {
        socket.write(text, "latin1");
        socket.write(body);
      }
    } else {
      socket.write(text, "latin1");
      this.#bodyWriter = writeBody(body, socket, framing.kind === "length" ? framing.length : undefined, (error) => {
        this.#bodyWriter = undefined;
        if (error) this.#fail("request", error.message, error);
      });
    }
  }

  #received(bytes: Buffer): boolean {
    // After an upgrade the socket is read as a stream.
    if (this.#isUpgraded) return this.#socket.push(copied(bytes));
    this.#onData(copied(bytes));
    return true;
  }

  #onData(chunk: Buffer): void {
    try {
      this.#parser.push(chunk);
    } catch (error) {
      contain(() => this.#unreadable(error), ignore);
      return;
    }
    if (this.#isComplete)
      contain(
        () => this.#release(),
        () => this.#retire(),
      );
  }

  /** An error other than ResponseError is a defect of the parser, and its message may quote data. */
  #unreadable(error: unknown): void {
    if (error instanceof ResponseError) this.#fail("response", error.message, error);
    else {
      surface(error);
      this.#fail("internal", "the response could not be read", error as Error);
    }
  }

  /**
   * Runs after all bytes of a read have been parsed. The connection is not reused if the request body was not written
   * completely, because the server may parse the rest as a new request.
   */
  #release(): void {
    this.#isComplete = false;
    if (!this.#keepAlive || this.#bodyWriter !== undefined || this.#isGone) {
      this.#retire();
      return;
    }
    this.#served += 1;
    if (this.#socket.isPaused()) this.#socket.resume();
    this.#owner.free(this);
  }

  #onEnd(): void {
    try {
      this.#parser.eof();
      this.#retire();
    } catch (error) {
      this.#fail(this.#faultKind(), (error as Error).message, error as Error);
    }
  }

  #faultKind(): HttpClientErrorKind {
    if (!this.#isConnected) return "connect";
    return this.#served > 0 && !this.#answering ? "stale" : "response";
  }

  #fail(kind: HttpClientErrorKind, message: string, cause?: Error): void {
    const attempt = this.#attempt;
    this.#attempt = undefined;
    this.#retire();
    attempt?.fail(new HttpClientError(kind, message, cause));
  }

  #retire(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#bodyWriter?.stop();
    this.#bodyWriter = undefined;
    this.#socket.destroy();
    this.#owner.gone(this);
  }
}

function ignore(): void {
  // The caller has already handled the failure, or no action is needed.
}

function keptMs(hint: string | undefined): number | undefined {
  const seconds = hint === undefined ? undefined : /\btimeout=(\d{1,6})\b/i.exec(hint)?.[1];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}
