/**
 * Forwards requests to the worker thread that owns the route. MCP sessions and child processes exist in one thread, so
 * one thread owns each route with MCP backends.
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
import type { ListenerEnv } from "../../pipeline/listen/listener-env.ts";
import { beginRejection } from "../../pipeline/listen/request-entry.ts";
import { handle } from "../../pipeline/phases/pipeline.ts";
import type { PipelineEnv, Served } from "../../pipeline/phases/pipeline-env.ts";

const RETRY_SECONDS = "1";
/** A body of known length up to this size is sent with the head in one message. */
const SMALL_BODY_BYTES = 64 * 1024;
/** The flow control window applies per body and direction. */
const WINDOW_BYTES = 256 * 1024;
/** Window updates are batched to this size. */
const REPORT_BYTES = WINDOW_BYTES / 4;
/** Chunks up to this size are sent as latin1 strings. Larger chunks are copied once and transferred. */
const CLONED_BYTES = 16 * 1024;

type Bytes = string | Uint8Array<ArrayBuffer>;

interface Lines {
  readonly pairs: string[];
  readonly isSafe: boolean;
}

type Start = Omit<ExchangeStart, "request"> & {
  readonly request: Omit<GatewayRequest, "headers" | "body">;
};

/** The thread that accepted the connection sends these messages. */
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
  /** Reports how many response bytes were written to the client. */
  | { readonly kind: "taken"; readonly id: number; readonly bytes: number }
  | { readonly kind: "stalled"; readonly id: number }
  | { readonly kind: "left"; readonly id: number };

/** The thread that serves the request sends these messages. */
type Returned =
  | {
      readonly kind: "response";
      readonly id: number;
      readonly head?: { readonly status: number; readonly lines: Lines };
      readonly bytes?: Bytes;
      readonly isLast?: true;
      readonly trailers?: readonly string[];
    }
  /** Requests the body (0), or reports how many of its bytes were read. */
  | { readonly kind: "read"; readonly id: number; readonly bytes: number }
  | { readonly kind: "cut"; readonly id: number };

export interface Forwarding {
  readonly forwardToThread: NonNullable<PipelineEnv["forwardToThread"]>;
  /** Replaces and closes an earlier port to the same thread. */
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
      // The port closes when the other thread exits for any reason.
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
    // A new listener is missing until this thread has applied the reload that adds it.
    if (target === undefined || env.heap.level === "full") refuse(env, exchange, client, beingReplaced(target));
    else handle(env, target, exchange, client);
  }

  /** An exception fails only its own request. */
  contain(action: () => void, giveUp: () => void): void {
    try {
      action();
    } catch (error) {
      this.env.unexpected(error, undefined);
      giveUp();
    }
  }
}

/** Represents a forwarded request in the accepting thread. */
class ForwardedRequest {
  readonly #id: number;
  readonly #link: ThreadLink;
  readonly #exchange: Exchange;
  readonly #sink: ClientSink;
  #isOver = false;
  #hasHead = false;
  /** Counts response bytes that were written to the client but not yet reported. */
  #taken = 0;
  /** Counts response bytes that wait for the client to drain. */
  #waiting = 0;
  #isReading = false;
  #isPaused = false;
  /** Counts body bytes that the other thread has not read. */
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
    // An upgrade needs the client's socket, which cannot move to another thread.
    if (request.headers.has("upgrade")) {
      request.headers.delete("upgrade");
      request.headers.delete("connection");
    }
    if (body.kind !== "stream") this.#send(body.kind === "bytes" ? body.bytes : undefined);
    else if (body.length === undefined || body.length > SMALL_BODY_BYTES) this.#sendHead(body.length);
    else {
      this.#sink.onStalled = () => this.#refuse(new GatewayError("request_timeout"));
      this.#sink.askForBody();
      // If the body is cut off, the connection closes, and `onClose` handles it.
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

  /** Called when the link to the other thread closes, for example because that thread exited. */
  lost(): void {
    if (this.#hasHead) this.cut();
    else this.#refuse(beingReplaced());
  }

  /** Ends the response abruptly, so that the client cannot mistake it for a complete one. */
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
    body.stream.queued?.(this.#unread);
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
      stream.queued?.(this.#unread);
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

/** Represents a forwarded request in the owning thread. */
class RemoteClient implements ClientSink, BodyCarrier {
  onDrain: (() => void) | undefined = undefined;
  onStalled: (() => void) | undefined = undefined;
  onClose: ((complete: boolean) => void) | undefined = undefined;
  readonly body: RequestBodySource | undefined;
  readonly #id: number;
  readonly #link: ThreadLink;
  /** The head is held until the next tick, so that a small response is one message. */
  #head: { readonly status: number; readonly lines: Lines } | undefined = undefined;
  #hasEnded = false;
  #isClosed = false;
  /** Counts response bytes that the accepting thread has not yet reported as written to the client. */
  #sent = 0;
  #awaitsDrain = false;
  #isBodyWanted = false;
  #hasBody: boolean;
  /** Counts body bytes that this thread received and has not yet reported as read. */
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
        if (this.body?.isDrained === true) this.#readBytes();
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
    // Closing is deferred, as on a connection, because the backend may still report its end.
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

  /** The accepting thread counts these bytes against its memory budget, because they are not reported as read. */
  bodyWaits(): void {}

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
    else if (this.#read >= (this.#hasBody ? 1 : REPORT_BYTES) && !this.#isClosed) {
      this.#link.send({ kind: "read", id: this.#id, bytes: this.#read });
      this.#read = 0;
    }
  }

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

/** If `served` is set, the thread is running but its memory is full. */
function beingReplaced(served?: Served): GatewayError {
  const headers = { "retry-after": RETRY_SECONDS };
  if (served !== undefined) return new GatewayError("overloaded", { headers });
  return new GatewayError("overloaded", { message: "the thread that serves this route is being replaced", headers });
}

function linesOf(headers: HeaderList): Lines {
  return { pairs: headers.pairs as string[], isSafe: headers.isSafe };
}

/** Cloning a pooled buffer would copy the whole pool, so the bytes are copied first. */
function bytesOf(chunk: Buffer): Bytes {
  return chunk.length <= CLONED_BYTES ? chunk.toString("latin1") : new Uint8Array(chunk);
}

function bufferOf(bytes: Bytes): Buffer {
  return typeof bytes === "string"
    ? Buffer.from(bytes, "latin1")
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function ignore(): void {}

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
  if ([listener, ...(listener.sections ?? [])].some(({ policies }) => policies.shape.length > 0)) {
    const owner = threadOf([...owned].map(({ name }) => name).sort()[0] ?? "", threads);
    return () => owner;
  }
  const owners = new Map([...owned].map((route) => [route, threadOf(route.name, threads)]));
  return ({ table }, { request }) => {
    const route = matched(table, request);
    return (route && owners.get(route)) ?? ANY_THREAD;
  };
}

/** Returns undefined for a request without a route or with an ambiguous match. */
function matched(table: Served["table"], request: Exchange["request"]): Route | undefined {
  try {
    return table.match(request);
  } catch (error) {
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

function isOwned({ backends }: Route): boolean {
  return backends.some(({ backend }) => backend.attributes.type === "mcp");
}

/** Returns a thread number, starting at 1. */
export function threadOf(name: string, threads: number): number {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (Math.imul(hash, 31) + name.charCodeAt(i)) | 0;
  return 1 + ((hash >>> 0) % threads);
}
