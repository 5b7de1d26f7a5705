/**
 * Forwards a request to the worker thread that owns its route, and serves the requests that other threads forward.
 * Sessions, child processes and shared servers belong to one thread, so a route with MCP backends is owned by one
 * thread, chosen by its name; other routes are served by the accepting thread. Two threads share a MessagePort, which
 * no other program can reach, so messages need no authentication. The request is forwarded before any policy runs; the
 * owning thread records it.
 */
import type { Duplex } from "node:stream";
import type { MessagePort } from "node:worker_threads";
import { GatewayError } from "../../core/errors.ts";
import { Exchange, type ExchangeStart, type GatewayRequest, NO_BODY, type RequestBody } from "../../core/exchange.ts";
import type { Reply } from "../../core/reply.ts";
import type { ClientSink } from "../../core/sink.ts";
import type { Listener, Route } from "../../core/topology.ts";
import { type RequestBodyStream, readExactly } from "../../http/body.ts";
import { type BodyCarrier, RequestBodySource } from "../../http/h1/request-body.ts";
import { HeaderList } from "../../http/headers.ts";
import { beginRejection } from "../../pipeline/listen/edge.ts";
import type { ListenerEnv } from "../../pipeline/listen/listener-env.ts";
import { handle } from "../../pipeline/phases/pipeline.ts";
import type { PipelineEnv, Served } from "../../pipeline/phases/pipeline-env.ts";

const RETRY_SECONDS = "1";
/** A body of known length up to this size is sent in one message with the head. */
const SMALL_BODY_BYTES = 64 * 1024;
/** Flow control window per body and direction; the sender waits when it is full. */
const WINDOW_BYTES = 256 * 1024;
/** Window updates are sent in portions; a small body needs none. */
const REPORT_BYTES = WINDOW_BYTES / 4;
/** Up to this size, bytes are sent as a latin1 string; larger chunks are copied once and transferred. */
const CLONED_BYTES = 16 * 1024;

type Bytes = string | Uint8Array<ArrayBuffer>;

interface Lines {
  readonly pairs: string[];
  /** See `HeaderList`. */
  readonly isSafe: boolean;
}

/** A request without its body and header lines. */
type Start = Omit<ExchangeStart, "request"> & {
  readonly request: Omit<GatewayRequest, "headers" | "body">;
};

/** Messages from the thread that accepted the connection. */
type Forwarded =
  | {
      readonly kind: "request";
      readonly id: number;
      readonly start: Start;
      readonly lines: Lines;
      readonly body: { readonly bytes: Bytes } | { readonly length: number | undefined } | undefined;
    }
  | { readonly kind: "body"; readonly id: number; readonly bytes: Bytes }
  | { readonly kind: "bodyEnd"; readonly id: number }
  /** The client took this many bytes of the response. */
  | { readonly kind: "taken"; readonly id: number; readonly bytes: number }
  | { readonly kind: "stalled"; readonly id: number }
  /** The client closed the connection. */
  | { readonly kind: "left"; readonly id: number };

/** Messages from the thread that serves the request. */
type Returned =
  | {
      readonly kind: "response";
      readonly id: number;
      readonly head?: { readonly status: number; readonly lines: Lines };
      readonly bytes?: Bytes;
      readonly isLast?: true;
      readonly trailers?: readonly string[];
    }
  /** Requests the body, or reports that this many of its bytes were read. */
  | { readonly kind: "read"; readonly id: number; readonly bytes: number }
  /** The response was cut off. */
  | { readonly kind: "cut"; readonly id: number };

export interface Forwarding {
  readonly forwardToThread: NonNullable<PipelineEnv["forwardToThread"]>;
  /** Sets the port to another thread; closes its earlier port. */
  connect(thread: number, port: MessagePort): void;
  close(): void;
}

export function createForwarding(
  { thread, threads }: { readonly thread: number; readonly threads: number },
  env: ListenerEnv,
  served: (listener: string) => Served | undefined,
): Forwarding {
  const ownerOf = createOwners(threads);
  const links = new Map<number, ThreadLink>();
  return {
    forwardToThread(from, exchange, sink) {
      const owner = ownerOf(from, exchange);
      if (owner === ANY_THREAD || owner === thread) return false;
      const link = links.get(owner);
      if (link === undefined) refuse(env, exchange, sink, beingReplaced());
      else link.forward(exchange, sink);
      return true;
    },
    connect(number, port) {
      links.get(number)?.close();
      const link = new ThreadLink(port, env, served);
      links.set(number, link);
      // The port closes when the thread at the other end exits for any reason.
      port.on("close", () => {
        link.close();
        if (links.get(number) === link) links.delete(number);
      });
    },
    close() {
      for (const link of links.values()) link.close();
      links.clear();
    },
  };
}

/** The requests between this thread and another, in both directions. */
class ThreadLink {
  readonly env: ListenerEnv;
  readonly #port: MessagePort;
  readonly #served: (listener: string) => Served | undefined;
  readonly #forwarded = new Map<number, ForwardedRequest>();
  readonly #serving = new Map<number, RemoteClient>();
  #nextId = 1;
  #isClosed = false;

  constructor(port: MessagePort, env: ListenerEnv, served: (listener: string) => Served | undefined) {
    this.env = env;
    this.#port = port;
    this.#served = served;
    port.on("message", (message: Forwarded | Returned) => this.#received(message));
  }

  forward(exchange: Exchange, sink: ClientSink): void {
    const id = this.#nextId++;
    const request = new ForwardedRequest(id, this, exchange, sink);
    this.#forwarded.set(id, request);
    request.start();
  }

  send(message: Forwarded | Returned, bytes?: Bytes): void {
    if (this.#isClosed) return;
    if (typeof bytes === "object") this.#port.postMessage(message, [bytes.buffer]);
    else this.#port.postMessage(message);
  }

  ended(id: number): void {
    this.#forwarded.delete(id);
  }

  served(id: number): void {
    this.#serving.delete(id);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#port.close();
    for (const request of this.#forwarded.values()) this.contain(() => request.lost(), ignore);
    for (const client of this.#serving.values()) this.contain(() => client.close(false), ignore);
    this.#forwarded.clear();
    this.#serving.clear();
  }

  #received(message: Forwarded | Returned): void {
    const { id } = message;
    switch (message.kind) {
      case "request":
        this.contain(
          () => this.#begin(message),
          () => this.#serving.get(id)?.destroy(),
        );
        return;
      case "response":
      case "read":
      case "cut": {
        const request = this.#forwarded.get(id);
        if (request)
          this.contain(
            () => request.returned(message),
            () => request.cut(),
          );
        return;
      }
      default: {
        const client = this.#serving.get(id);
        if (client)
          this.contain(
            () => client.received(message),
            () => client.destroy(),
          );
      }
    }
  }

  #begin({ id, start, lines, body: sent }: Extract<Forwarded, { kind: "request" }>): void {
    const { env } = this;
    const client = new RemoteClient(id, this, sent !== undefined && "length" in sent);
    this.#serving.set(id, client);
    let body: RequestBody = NO_BODY;
    if (client.body !== undefined && sent !== undefined && "length" in sent)
      body = { kind: "stream", stream: client.body, length: sent.length, taken: false };
    else if (sent !== undefined && "bytes" in sent) body = { kind: "bytes", bytes: bufferOf(sent.bytes) };
    const headers = new HeaderList(lines.pairs, lines.isSafe);
    const exchange = new Exchange({ ...start, request: { ...start.request, headers, body }, memory: env.memory });
    const target = this.#served(exchange.listener);
    // The listener is missing while this thread has not finished a reload.
    if (target === undefined || env.heap.level === "full") refuse(env, exchange, client, beingReplaced(target));
    else handle(env, target, exchange, client);
  }

  /** An exception fails only its own request, not the others of this port. */
  contain(action: () => void, giveUp: () => void): void {
    try {
      action();
    } catch (error) {
      this.env.unexpected(error, undefined);
      giveUp();
    }
  }
}

/** A request that another thread serves for a client of this thread. */
class ForwardedRequest {
  readonly #id: number;
  readonly #link: ThreadLink;
  readonly #exchange: Exchange;
  readonly #sink: ClientSink;
  #isOver = false;
  #hasHead = false;
  /** Response bytes written to the client and not reported yet. */
  #taken = 0;
  /** Response bytes buffered for the client. */
  #waiting = 0;
  #isReading = false;
  #isPaused = false;
  /** Body bytes that the other thread has not read. */
  #unread = 0;

  constructor(id: number, link: ThreadLink, exchange: Exchange, sink: ClientSink) {
    this.#id = id;
    this.#link = link;
    this.#exchange = exchange;
    this.#sink = sink;
  }

  start(): void {
    const { request } = this.#exchange;
    const { body } = request;
    this.#sink.onClose = () => this.#left();
    // An upgrade would need the client's socket, which cannot move to another thread.
    if (request.headers.has("upgrade")) {
      request.headers.delete("upgrade");
      request.headers.delete("connection");
    }
    if (body.kind !== "stream") this.#send(body.kind === "bytes" ? body.bytes : undefined);
    else if (body.length === undefined || body.length > SMALL_BODY_BYTES) this.#sendHead(body.length);
    else {
      this.#sink.onStalled = () => this.#refuse(new GatewayError("request_timeout"));
      this.#sink.askForBody();
      // If the body is cut off, the connection closes as well.
      readExactly(body.stream, body.length, (error, bytes) => {
        if (error === undefined && !this.#isOver) this.#send(bytes);
      });
    }
  }

  returned(message: Returned): void {
    if (message.kind === "cut") this.cut();
    else if (message.kind === "read") this.#read(message.bytes);
    else {
      const { head, bytes, isLast, trailers } = message;
      if (head) {
        this.#hasHead = true;
        this.#sink.head(head.status, new HeaderList(head.lines.pairs, head.lines.isSafe));
      }
      const chunk = bytes === undefined ? undefined : bufferOf(bytes);
      if (isLast) {
        this.#end();
        this.#sink.end(chunk, trailers);
      } else if (chunk) this.#write(chunk);
    }
  }

  /** The other thread exited. */
  lost(): void {
    if (this.#hasHead) this.cut();
    else this.#refuse(beingReplaced());
  }

  /** Destroys the connection, so that the client does not take a partial response for a complete one. */
  cut(): void {
    if (this.#isOver) return;
    this.#end();
    this.#sink.destroy();
  }

  #refuse(error: GatewayError): void {
    if (this.#isOver) return;
    this.#end();
    refuse(this.#link.env, this.#exchange, this.#sink, error);
  }

  #send(body: Buffer | undefined): void {
    const bytes = body && bytesOf(body);
    this.#post(bytes === undefined ? undefined : { bytes }, bytes);
  }

  #sendHead(length: number | undefined): void {
    this.#sink.onStalled = () => this.#link.send({ kind: "stalled", id: this.#id });
    this.#post({ length });
  }

  #post(body: Extract<Forwarded, { kind: "request" }>["body"], bytes?: Bytes): void {
    this.#sink.onDrain = () => this.#drained();
    const { request } = this.#exchange;
    const { headers, body: _body, ...rest } = request;
    const { id, listener, source, startedAt, startedMs } = this.#exchange;
    const start: Start = { id, listener, source, startedAt, startedMs, request: rest };
    this.#link.send({ kind: "request", id: this.#id, start, lines: linesOf(headers), body }, bytes);
  }

  #write(chunk: Buffer): void {
    if (this.#sink.write(chunk)) this.#tookBytes(chunk.length);
    else this.#waiting += chunk.length;
  }

  #drained(): void {
    const bytes = this.#waiting;
    this.#waiting = 0;
    this.#tookBytes(bytes);
  }

  #tookBytes(bytes: number): void {
    this.#taken += bytes;
    if (this.#taken < REPORT_BYTES || this.#isOver) return;
    this.#link.send({ kind: "taken", id: this.#id, bytes: this.#taken });
    this.#taken = 0;
  }

  #read(bytes: number): void {
    const { body } = this.#exchange.request;
    if (body.kind !== "stream") return;
    this.#unread -= bytes;
    this.#sink.askForBody();
    if (!this.#isReading) this.#readBody(body.stream);
    else if (this.#isPaused && this.#unread < WINDOW_BYTES) {
      this.#isPaused = false;
      body.stream.resume();
    }
  }

  #readBody(stream: RequestBodyStream): void {
    this.#isReading = true;
    stream.on("data", (chunk: Buffer) => {
      if (this.#isOver) return;
      const bytes = bytesOf(chunk);
      this.#unread += chunk.length;
      this.#link.send({ kind: "body", id: this.#id, bytes }, bytes);
      if (this.#unread < WINDOW_BYTES) return;
      this.#isPaused = true;
      stream.pause();
    });
    stream.on("end", () => {
      if (!this.#isOver) this.#link.send({ kind: "bodyEnd", id: this.#id });
    });
  }

  #left(): void {
    if (this.#isOver) return;
    this.#end();
    this.#link.send({ kind: "left", id: this.#id });
  }

  #end(): void {
    this.#isOver = true;
    this.#link.ended(this.#id);
  }
}

/** A request that another thread forwarded for its client. */
class RemoteClient implements ClientSink, BodyCarrier {
  onDrain: (() => void) | undefined = undefined;
  onStalled: (() => void) | undefined = undefined;
  onClose: ((complete: boolean) => void) | undefined = undefined;
  readonly body: RequestBodySource | undefined;
  readonly #id: number;
  readonly #link: ThreadLink;
  /** Held until the end of the event loop turn, so that a small response is one message. */
  #head: { readonly status: number; readonly lines: Lines } | undefined = undefined;
  #hasEnded = false;
  #isClosed = false;
  /** Response bytes that the client has not received. */
  #sent = 0;
  #awaitsDrain = false;
  #isBodyWanted = false;
  #hasBody: boolean;
  /** Body bytes read here and not reported yet. */
  #read = 0;
  #moved = 0;
  #lastMoved = -1;

  constructor(id: number, link: ThreadLink, streamsBody: boolean) {
    this.#id = id;
    this.#link = link;
    this.#hasBody = !streamsBody;
    this.body = streamsBody ? new RequestBodySource(this) : undefined;
  }

  received(message: Exclude<Forwarded, { kind: "request" }>): void {
    switch (message.kind) {
      case "body":
        this.#receivedBody(bufferOf(message.bytes));
        return;
      case "bodyEnd":
        this.#hasBody = true;
        this.body?.complete();
        return;
      case "taken":
        this.#sent -= message.bytes;
        if (!this.#awaitsDrain || this.#sent >= WINDOW_BYTES) return;
        this.#awaitsDrain = false;
        this.onDrain?.();
        return;
      case "stalled":
        this.onStalled?.();
        return;
      case "left":
        this.close(false);
    }
  }

  // THE RESPONSE

  head(status: number, headers: HeaderList): void {
    if (this.#isClosed || this.#hasEnded) return;
    this.#head = { status, lines: linesOf(headers) };
    this.#later(() => {
      if (this.#head !== undefined) this.#respond(undefined);
    });
  }

  write(chunk: Buffer): boolean {
    if (this.#isClosed || this.#hasEnded || chunk.length === 0) return true;
    this.#sent += chunk.length;
    this.#respond(bytesOf(chunk));
    if (this.#sent < WINDOW_BYTES) return true;
    this.#awaitsDrain = true;
    return false;
  }

  end(lastChunk?: Buffer, trailers?: readonly string[]): void {
    if (this.#hasEnded || this.#isClosed) return;
    this.#hasEnded = true;
    this.#respond(lastChunk && bytesOf(lastChunk), trailers);
    // Deferred to a later turn, as on a connection, because the backend may still report its own end.
    this.#later(() => this.close(true));
  }

  destroy(): void {
    if (this.#isClosed) return;
    this.#link.send({ kind: "cut", id: this.#id });
    this.close(false);
  }

  upgrade(_status: number, _headers: HeaderList, backend: Duplex): void {
    backend.destroy();
    this.destroy();
  }

  #respond(bytes: Bytes | undefined, trailers?: readonly string[]): void {
    if (this.#isClosed) return;
    const head = this.#head;
    this.#head = undefined;
    this.#link.send(
      {
        kind: "response",
        id: this.#id,
        ...(head === undefined ? {} : { head }),
        ...(bytes === undefined ? {} : { bytes }),
        ...(this.#hasEnded ? { isLast: true } : {}),
        ...(trailers === undefined ? {} : { trailers }),
      },
      bytes,
    );
  }

  // THE BODY OF THE REQUEST

  askForBody(): void {
    if (this.#isBodyWanted || this.#hasBody || this.#isClosed) return;
    this.#isBodyWanted = true;
    this.#link.send({ kind: "read", id: this.#id, bytes: 0 });
  }

  isUploading(): boolean {
    if (this.#hasBody) return false;
    const hasMoved = this.#moved !== this.#lastMoved;
    this.#lastMoved = this.#moved;
    return hasMoved || this.body?.isDrained === true;
  }

  /** Buffered bytes are not reported as read, so the other thread stops sending. */
  pauseBody(): void {}

  resumeBody(): void {
    this.#later(() => {
      if (this.body?.flush() === true) this.#readBytes();
    });
  }

  #receivedBody(chunk: Buffer): void {
    this.#moved += chunk.length;
    this.#read += chunk.length;
    this.body?.push(chunk);
    if (this.body?.isDrained === true) this.#readBytes();
  }

  #readBytes(): void {
    if (!this.#isBodyWanted) this.askForBody();
    else if (this.#read >= REPORT_BYTES && !this.#hasBody && !this.#isClosed) {
      this.#link.send({ kind: "read", id: this.#id, bytes: this.#read });
      this.#read = 0;
    }
  }

  /** The response was sent, or the client is gone. */
  close(complete: boolean): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#link.served(this.#id);
    try {
      this.onClose?.(complete);
    } finally {
      if (!this.#hasBody) this.body?.abort();
    }
  }

  #later(action: () => void): void {
    process.nextTick(() => this.#link.contain(action, () => this.destroy()));
  }
}

function refuse(env: ListenerEnv, exchange: Exchange, sink: ClientSink, error: GatewayError): void {
  const rejection = beginRejection(env, exchange, error);
  const { status, headers, body }: Reply = rejection.reply;
  sink.onClose = (complete) => rejection.settle(complete);
  sink.onStalled = undefined;
  sink.head(status, headers);
  sink.end(body);
}

/** With `served`, the thread is running but its memory is full. */
function beingReplaced(served?: Served): GatewayError {
  const headers = { "retry-after": RETRY_SECONDS };
  if (served !== undefined) return new GatewayError("overloaded", { headers });
  return new GatewayError("overloaded", { message: "the thread that serves this route is being replaced", headers });
}

function linesOf(headers: HeaderList): Lines {
  return { pairs: headers.pairs as string[], isSafe: headers.isSafe };
}

/** Copies the bytes, because a clone of a pooled buffer would include the whole pool. */
function bytesOf(chunk: Buffer): Bytes {
  return chunk.length <= CLONED_BYTES ? chunk.toString("latin1") : new Uint8Array(chunk);
}

function bufferOf(bytes: Bytes): Buffer {
  return typeof bytes === "string"
    ? Buffer.from(bytes, "latin1")
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function ignore(): void {
  // The request has already ended.
}

/** The accepting thread serves the request. */
export const ANY_THREAD = 0;

type OwnerOf = (served: Served, exchange: Exchange) => number;

export function createOwners(threads: number): OwnerOf {
  const known = new WeakMap<Listener, OwnerOf>();
  return (served, exchange) => {
    let ownerOf = known.get(served.listener);
    if (ownerOf === undefined) {
      ownerOf = ownersOf(served.listener, threads);
      known.set(served.listener, ownerOf);
    }
    return ownerOf(served, exchange);
  };
}

function ownersOf(listener: Listener, threads: number): OwnerOf {
  const owned = new Set(listener.routes.filter(isOwned));
  if (owned.size === 0) return () => ANY_THREAD;
  if (listener.policies.shape.length > 0) {
    const owner = threadOf([...owned].map(({ name }) => name).sort()[0] ?? "", threads);
    return () => owner;
  }
  const owners = new Map([...owned].map((route) => [route, threadOf(route.name, threads)]));
  return ({ table }, { request }) => {
    const route = matched(table, request);
    return (route && owners.get(route)) ?? ANY_THREAD;
  };
}

/** The accepting thread rejects a request without a route. */
function matched(table: Served["table"], request: Exchange["request"]): Route | undefined {
  try {
    return table.match(request);
  } catch (error) {
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

function isOwned({ backends }: Route): boolean {
  return backends.some(({ backend }) => backend.facts.type === "mcp");
}

/** From 1. */
export function threadOf(name: string, threads: number): number {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (Math.imul(hash, 31) + name.charCodeAt(i)) | 0;
  return 1 + ((hash >>> 0) % threads);
}
