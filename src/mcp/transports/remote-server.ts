/**
 * Implements the HTTP client for one remote MCP server, with connection pool, configured headers, size limits, and
 * memory accounting.
 */

import { readForm } from "../../base/form.ts";
import {
  type MessageRejection,
  type MessageReservation,
  type ServerMessages,
  SMALL_MESSAGE_BYTES,
} from "../../base/memory-budget.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { TextPieces } from "../../base/text-pieces.ts";
import type { SignedRequest, SignRequest } from "../../core/signed-request.ts";
import type { WireTap } from "../../core/wire.ts";
import { BodyTooLarge } from "../../http/body.ts";
import { openHttpPool } from "../../http/client/http-pool.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";
import { HeaderList } from "../../http/headers.ts";
import { hostToConnect } from "../../http/host.ts";
import type {
  HttpCall,
  HttpClientError,
  HttpPool,
  HttpResponseReceiver,
  OutgoingRequest,
  TlsOptions,
} from "../../http/http-client.ts";
import { createSseParser, type SseEvent, type SseParser, SseTooLarge } from "../../http/sse.ts";
import { withoutSecrets } from "../../record/trace/redact.ts";
import { LOGIN_REQUIRED, type LoginRequired } from "../protocol/call.ts";
import { OneWayLimits, type OneWayMessage, OneWayQueue } from "./one-way-queue.ts";

const EVENT_STREAM = peerInput("mcp-server/event-stream");
const ADDRESS = peerInput("file/server-address");

export const MAX_ERROR_BODY_CHARS = 64 * 1024;
const SHOWN_CHARS = 200;

export interface RemoteOptions {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Returns true if clients log in at the server themselves and the gateway relays the server's login challenges. */
  relaysLogin?(): boolean;
  readonly egress: EgressGuard;
  /** Signs every request in its final form. Returns undefined if requests are not signed. */
  signer?(): SignRequest | undefined;
  maxMessageBytes(): number;
  readonly messages: ServerMessages;
}

export interface RemoteServer {
  readonly url: URL;
  readonly address: string;
  shown(text: string): string;
  /** Returns the reason of a failed call. The server can quote the configured credentials in the body. */
  rejection(status: number, body: string): string;
  requiredLogin(status: number, headers: HeaderList): LoginRequired | undefined;
  send(request: RemoteRequest, handler: RemoteHandler): HttpCall;
  /** Creates the queue of a channel. Queues of one kind share the limits of the server. */
  oneWayQueue(kind: "answers" | "notifications", start: (queued: OneWayMessage) => void): OneWayQueue;
  close(): void;
}

export interface RemoteRequest {
  readonly method: string;
  /** Defaults to the path and query of the configured URL. */
  readonly path?: string;
  /** Alternating names and values, which override configured headers. */
  readonly headers: readonly string[];
  readonly body?: string | Buffer | undefined;
  readonly mayRepeat?: boolean;
  readonly wire?: WireTap | undefined;
}

/** Receives a body that is not an MCP message. */
export interface BodyReader {
  /** The memory that the body uses. */
  readonly bytes: number;
  add(chunk: Buffer): void;
  /** Called after the last chunk. */
  end(): void;
}

export interface RemoteHandler {
  head(status: number, headers: HeaderList): void;
  /** Called after `head`. Without a reader, the body is a message of an MCP server. */
  reader?(): BodyReader;
  event(event: SseEvent): void;
  /** Receives the whole body of a response that is not parsed as an event stream. */
  body(text: string): void;
  mayRead(): boolean;
  /** Calls back after the received data is parsed. */
  afterParsing?(parsed: () => void): void;
  end(): void;
  error(reason: string): void;
}

export function openRemoteServer(options: RemoteOptions, tls: TlsOptions | undefined): RemoteServer {
  const url = new URL(options.url);
  const isTls = url.protocol === "https:";
  const port = url.port === "" ? (isTls ? 443 : 80) : Number(url.port);
  const host = hostToConnect(url);
  const pool: HttpPool = openHttpPool({
    protocol: isTls ? "https" : "http",
    host,
    port,
    egress: options.egress,
    ...(isTls && tls ? { tls } : {}),
  });
  const scheme = isTls ? "https" : "http";
  const address = `${url.hostname}:${port}`;
  const hiddenHeaders = Object.keys(options.headers).map((name) => name.toLowerCase());
  const query = readForm(ADDRESS, url.search);
  const secrets = [...Object.values(options.headers), ...query.values(), ...rawValues(url.search)];
  const limits = { answers: new OneWayLimits(), notifications: new OneWayLimits() };
  return {
    url,
    shown: (text) => withoutSecrets(text, secrets),
    rejection(status, body) {
      const excerpt = withoutSecrets(body.slice(0, MAX_ERROR_BODY_CHARS).trim(), secrets).slice(0, SHOWN_CHARS);
      return excerpt === "" ? `answered with status ${status}` : `answered with status ${status}: ${excerpt}`;
    },
    address,
    requiredLogin: (status, headers) => requiredLogin(status, headers, options.relaysLogin?.() === true),
    send(request, handler) {
      const headers = HeaderList.of({ host: url.host, "accept-encoding": "identity", ...options.headers });
      for (let i = 0; i + 1 < request.headers.length; i += 2)
        headers.set(request.headers[i] as string, request.headers[i + 1] as string);
      const body = typeof request.body === "string" ? Buffer.from(request.body) : request.body;
      const outgoing = { method: request.method, path: request.path ?? url.pathname + url.search, headers, body };
      const { wire } = request;
      const repeats = request.mayRepeat === true;
      const begin = (receiver: RemoteHandler): HttpCall => {
        if (wire === undefined) return new RemoteCall(pool, outgoing, receiver, options, repeats);
        const hiddenQuery = [...query.keys()];
        const attempt = {
          over: "http",
          scheme,
          request: outgoing,
          hiddenHeaders,
          hiddenQuery,
          isReported: true,
        } as const;
        wire.attempt(address, attempt);
        const tap = new ResponseTap(wire, address);
        const call = new RemoteCall(pool, outgoing, tap.handler(receiver), options, repeats);
        return tap.call(call);
      };
      const sign = options.signer?.();
      if (sign === undefined) return begin(handler);
      const signed = {
        ...outgoing,
        protocol: scheme,
        hostname: host,
        port,
        body: body === undefined ? [] : [body],
      } as const;
      return new SignedCall(sign, signed, begin, handler);
    },
    oneWayQueue: (kind, start) => new OneWayQueue(limits[kind], options.messages, start),
    close: () => pool.close(),
  };
}

/** Starts a call after its request was signed, and once more if the server rejected the date of the signature. */
class SignedCall implements HttpCall {
  readonly #sign: SignRequest;
  readonly #request: SignedRequest;
  readonly #begin: (handler: RemoteHandler) => HttpCall;
  readonly #handler: RemoteHandler;
  #call: HttpCall | undefined = undefined;
  #isOver = false;
  #mayCorrect = true;

  constructor(
    sign: SignRequest,
    request: SignedRequest,
    begin: (handler: RemoteHandler) => HttpCall,
    handler: RemoteHandler,
  ) {
    this.#sign = sign;
    this.#request = request;
    this.#begin = begin;
    this.#handler = { ...handler, head: (status, headers) => this.#head(handler, status, headers) };
    this.#start();
  }

  get isOver(): boolean {
    return this.#isOver || this.#call?.isOver === true;
  }

  abort(): void {
    this.#isOver = true;
    this.#call?.abort();
  }

  resume(): void {
    this.#call?.resume();
  }

  #start(): void {
    this.#call = undefined;
    this.#sign(this.#request).then(
      () => {
        if (!this.#isOver) this.#call = this.#begin(this.#handler);
      },
      (error: Error) => {
        if (this.#isOver) return;
        this.#isOver = true;
        this.#handler.error(`could not be called: ${error.message}`);
      },
    );
  }

  #head(handler: RemoteHandler, status: number, headers: HeaderList): void {
    if (this.#mayCorrect && this.#sign.correctClock(status, headers)) {
      this.#mayCorrect = false;
      this.#call?.abort();
      this.#start();
    } else handler.head(status, headers);
  }
}

const CHALLENGE = peerInput("mcp-server/challenge");

function requiredLogin(status: number, headers: HeaderList, isRelayed: boolean): LoginRequired | undefined {
  if (status !== 401 && status !== 403) return undefined;
  const text = isRelayed ? headers.get("www-authenticate") : undefined;
  const challenge =
    text !== undefined && text.length <= CHALLENGE.maxBytes && /^bearer\b/i.test(text) ? text : undefined;
  // With `insufficient_scope`, the client may request a token with more scope (RFC 6750 section 3.1).
  if (status === 403) return challenge?.includes("insufficient_scope") ? { status, challenge } : undefined;
  return challenge === undefined ? LOGIN_REQUIRED : { status, challenge };
}

class ResponseTap {
  readonly #wire: WireTap;
  readonly #address: string;
  #isReported = false;

  constructor(wire: WireTap, address: string) {
    this.#wire = wire;
    this.#address = address;
  }

  handler(handler: RemoteHandler): RemoteHandler {
    return {
      ...handler,
      head: (status, headers) => {
        this.#isReported = true;
        this.#wire.received(status, headers, this.#address);
        handler.head(status, headers);
      },
      error: (reason) => {
        this.#missed(reason);
        handler.error(reason);
      },
    };
  }

  call(call: HttpCall): HttpCall {
    return {
      get isOver() {
        return call.isOver;
      },
      abort: () => {
        this.#missed("was canceled before it responded");
        call.abort();
      },
      resume: () => call.resume(),
    };
  }

  #missed(reason: string): void {
    if (this.#isReported) return;
    this.#isReported = true;
    this.#wire.missed(reason, this.#address);
  }
}

function rawValues(search: string): string[] {
  return search.split("&").map((part) => part.slice(part.indexOf("=") + 1));
}

const REJECTED_MESSAGE: Readonly<Record<MessageRejection, string>> = {
  stalled: "took too long to send a large message while other servers waited for memory",
  excess: "sent a large message while too many others waited for memory",
};

class RemoteCall implements HttpCall, HttpResponseReceiver {
  readonly #pool: HttpPool;
  readonly #request: OutgoingRequest;
  #call: HttpCall;
  #mayRepeat: boolean;
  readonly #handler: RemoteHandler;
  readonly #maxBytes: number;
  readonly #messages: ServerMessages;
  #room: MessageReservation | undefined = undefined;
  #parsing: MessageReservation | undefined = undefined;
  #status = 0;
  #parser: SseParser | undefined = undefined;
  #body: BodyReader | undefined = undefined;

  constructor(
    pool: HttpPool,
    request: OutgoingRequest,
    handler: RemoteHandler,
    { maxMessageBytes, messages }: Pick<RemoteOptions, "maxMessageBytes" | "messages">,
    mayRepeat: boolean,
  ) {
    this.#pool = pool;
    this.#request = request;
    this.#handler = handler;
    this.#maxBytes = maxMessageBytes();
    this.#messages = messages;
    this.#mayRepeat = mayRepeat;
    this.#call = pool.send(request, this);
  }

  get isOver(): boolean {
    return this.#call.isOver;
  }

  abort(): void {
    this.#call.abort();
    this.#room?.release();
    this.#parsing?.release();
  }

  resume(): void {
    if (this.#room?.isWaiting !== true) this.#call.resume();
  }

  head(status: number, headers: HeaderList): void {
    this.#status = status;
    const isEvents = headers.get("content-type")?.toLowerCase().startsWith("text/event-stream") === true;
    if (isEvents && status === 200 && this.#handler.reader === undefined)
      // An event may end the call, so later events of the same chunk are dropped.
      this.#parser = createSseParser(EVENT_STREAM.upTo(this.#maxBytes), (event) => {
        if (!this.isOver) this.#handler.event(event);
      });
    this.#handler.head(status, headers);
    this.#body = this.#handler.reader?.();
  }

  data(chunk: Buffer): boolean {
    try {
      if (this.#parser) this.#parser.push(chunk);
      else {
        this.#body ??= this.#message();
        this.#body.add(chunk);
        if (this.#body.bytes > this.#maxBytes) throw new BodyTooLarge(this.#maxBytes);
      }
    } catch (error) {
      // The caller aborted the call, so no error is reported.
      if (this.isOver) {
        this.#room?.release();
        throw error;
      }
      this.abort();
      const isTooLarge = error instanceof BodyTooLarge || error instanceof SseTooLarge;
      this.#handler.error(
        isTooLarge ? `sent a message larger than ${this.#maxBytes} bytes` : `broke off: ${(error as Error).message}`,
      );
      return true;
    }
    const hasRoom = this.#charge(this.#parser?.heldBytes ?? this.#body?.bytes ?? 0);
    return this.#handler.mayRead() && hasRoom;
  }

  #message(): BodyReader {
    const text = new TextPieces();
    return {
      get bytes() {
        return text.bytes;
      },
      add: (chunk) => text.add(chunk),
      end: () => this.#handler.body(text.end()),
    };
  }

  /** Returns false if the memory budget is exhausted. */
  #charge(heldBytes: number): boolean {
    if (this.#room === undefined) {
      if (heldBytes <= SMALL_MESSAGE_BYTES || this.isOver) return true;
      this.#room = this.#messages.open({
        resume: () => {
          if (this.#handler.mayRead()) this.#call.resume();
        },
        reject: (cause) => {
          if (this.isOver) return;
          this.abort();
          this.#handler.error(REJECTED_MESSAGE[cause]);
        },
      });
    }
    if (heldBytes > SMALL_MESSAGE_BYTES) return this.#room.resize(heldBytes);
    this.#releaseParsed();
    return true;
  }

  #releaseParsed(): void {
    const room = this.#room;
    this.#room = undefined;
    if (room === undefined) return;
    room.received();
    this.#parsing = room;
    if (this.#handler.afterParsing) this.#handler.afterParsing(() => room.release());
    else room.release();
  }

  end(): void {
    if (this.#parser === undefined) (this.#body ?? this.#message()).end();
    this.#body = undefined;
    this.#releaseParsed();
    this.#handler.end();
  }

  fail(error: HttpClientError): void {
    this.#room?.release();
    this.#body = undefined;
    if (error.kind === "stale" && this.#mayRepeat) {
      this.#mayRepeat = false;
      this.#call = this.#pool.send(this.#request, this);
      return;
    }
    this.#handler.error(
      this.#status === 0 ? `could not be reached: ${error.message}` : `ended its response early: ${error.message}`,
    );
  }
}
