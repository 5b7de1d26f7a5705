/**
 * A remote MCP server as HTTP sees it: its address, its connections, and the headers that every request carries.
 * Nothing of the client's request is among them unless the configuration names it.
 */

import { type MessageRoom, type ServerMessages, SMALL_MESSAGE_BYTES } from "../../base/memory-budget.ts";
import { TextPieces } from "../../base/text-pieces.ts";
import type { WireTap } from "../../core/wire.ts";
import { BodyTooLarge } from "../../http/body.ts";
import { openHttpPool } from "../../http/client/http-pool.ts";
import { HeaderList } from "../../http/headers.ts";
import type {
  HttpCall,
  HttpClientError,
  HttpPool,
  OutgoingRequest,
  ResponseHandler,
  TlsOptions,
} from "../../http/http-client.ts";
import { createSseParser, type SseEvent, type SseParser, SseTooLarge } from "../../http/sse.ts";
import { withoutSecrets } from "../../observe/trace/redact.ts";
import { LOGIN_REQUIRED, type LoginRequired } from "../protocol/call.ts";

export interface RemoteOptions {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Challenges of the server reach clients: they log in there themselves. */
  relaysLogin?(): boolean;
  readonly isConfined?: boolean | undefined;
  /** The largest event or body. */
  maxMessageBytes(): number;
  /** Where large events and bodies are charged. */
  readonly messages: ServerMessages;
}

export interface RemoteServer {
  readonly url: URL;
  /** `host:port`. */
  readonly address: string;
  /** A text of the server without the keys that it was sent, should it repeat them. */
  shown(text: string): string;
  /** Whether an answer asks for a login, or for another one. */
  loginOf(status: number, headers: HeaderList): LoginRequired | undefined;
  send(request: RemoteRequest, handler: RemoteHandler): HttpCall;
  close(): void;
}

export interface RemoteRequest {
  readonly method: "GET" | "POST" | "DELETE";
  /** Default: the configured URL's. */
  readonly path?: string;
  /** name, value, …; they win over the configured ones of the same name. */
  readonly headers: readonly string[];
  readonly body?: string;
  /** It may reach the server twice. */
  readonly mayRepeat?: boolean;
  /** Told what is sent and what comes back; undefined unless somebody watches. */
  readonly wire?: WireTap | undefined;
}

export interface RemoteHandler {
  head(status: number, headers: HeaderList): void;
  /** An event of an event stream; returns false to pause. */
  event(event: SseEvent): void;
  /** The whole body of any other answer, up to the limit. */
  body(text: string): void;
  /** Whether reading goes on. */
  mayRead(): boolean;
  /** Calls back once everything that was received so far is parsed; default: it is. */
  afterParsing?(parsed: () => void): void;
  end(): void;
  error(reason: string): void;
}

export function openRemoteServer(options: RemoteOptions, tls: TlsOptions | undefined): RemoteServer {
  const url = new URL(options.url);
  const isTls = url.protocol === "https:";
  const port = url.port === "" ? (isTls ? 443 : 80) : Number(url.port);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const pool: HttpPool = openHttpPool({
    protocol: isTls ? "https" : "http",
    host,
    port,
    isConfined: options.isConfined,
    ...(isTls && tls ? { tls } : {}),
  });
  const scheme = isTls ? "https" : "http";
  const address = `${url.hostname}:${port}`;
  const hiddenHeaders = Object.keys(options.headers).map((name) => name.toLowerCase());
  const secrets = [...Object.values(options.headers), ...url.searchParams.values(), ...rawValues(url.search)];
  return {
    url,
    shown: (text) => withoutSecrets(text, secrets),
    address,
    loginOf: (status, headers) => loginOf(status, headers, options.relaysLogin?.() === true),
    send(request, handler) {
      const headers = HeaderList.of({ host: url.host, "accept-encoding": "identity", ...options.headers });
      for (let i = 0; i + 1 < request.headers.length; i += 2)
        headers.set(request.headers[i] as string, request.headers[i + 1] as string);
      const body = request.body === undefined ? undefined : Buffer.from(request.body);
      const outgoing = { method: request.method, path: request.path ?? url.pathname + url.search, headers, body };
      const { wire } = request;
      const repeats = request.mayRepeat === true;
      if (wire === undefined) return new Reading(pool, outgoing, handler, options, repeats);
      const hiddenQuery = [...url.searchParams.keys()];
      wire.attempt(address, { over: "http", scheme, request: outgoing, hiddenHeaders, hiddenQuery });
      return new Reading(pool, outgoing, tapped(handler, wire, address), options, repeats);
    },
    close: () => pool.close(),
  };
}

/** Longer ones are not passed on. */
const MAX_CHALLENGE_CHARS = 4_096;

function loginOf(status: number, headers: HeaderList, isRelayed: boolean): LoginRequired | undefined {
  if (status !== 401 && status !== 403) return undefined;
  const text = isRelayed ? headers.get("www-authenticate") : undefined;
  const challenge =
    text !== undefined && text.length <= MAX_CHALLENGE_CHARS && /^bearer\b/i.test(text) ? text : undefined;
  // A token for less than is asked: the client may get another one (RFC 6750 section 3.1).
  if (status === 403) return challenge?.includes("insufficient_scope") ? { status, challenge } : undefined;
  return challenge === undefined ? LOGIN_REQUIRED : { status, challenge };
}

/** The same handler, and the trace hears of the head or that there is none. */
function tapped(handler: RemoteHandler, wire: WireTap, address: string): RemoteHandler {
  let hasHead = false;
  return {
    ...handler,
    head(status, headers) {
      hasHead = true;
      wire.received(status, headers, address);
      handler.head(status, headers);
    },
    error(reason) {
      if (!hasHead) wire.missed(reason, address);
      handler.error(reason);
    },
  };
}

/** As they stand in the URL, without decoding. */
function rawValues(search: string): string[] {
  return search.split("&").map((part) => part.slice(part.indexOf("=") + 1));
}

const STALLED_MESSAGE = "took too long to send a large message while other servers waited for memory";

/** One answer while it arrives. */
class Reading implements HttpCall, ResponseHandler {
  readonly #pool: HttpPool;
  readonly #request: OutgoingRequest;
  #call: HttpCall;
  /** A connection that was closed meanwhile is no reason to fail. */
  #mayRepeat: boolean;
  readonly #handler: RemoteHandler;
  readonly #maxBytes: number;
  readonly #messages: ServerMessages;
  /** From the first large message on. */
  #room: MessageRoom | undefined = undefined;
  /** The room of the last large message until it is parsed. */
  #parsing: MessageRoom | undefined = undefined;
  #status = 0;
  #parser: SseParser | undefined = undefined;
  #body: TextPieces | undefined = undefined;

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
    if (isEvents && status === 200)
      // An event may end the call while others wait behind it in the same chunk.
      this.#parser = createSseParser((event) => {
        if (!this.isOver) this.#handler.event(event);
      }, this.#maxBytes);
    this.#handler.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    try {
      if (this.#parser) this.#parser.push(chunk);
      else {
        this.#body ??= new TextPieces();
        this.#body.add(chunk);
        if (this.#body.bytes > this.#maxBytes) throw new BodyTooLarge(this.#maxBytes);
      }
    } catch (error) {
      // Who has left needs no reason.
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

  /** False: there is no room for more of the message. */
  #charge(heldBytes: number): boolean {
    if (this.#room === undefined) {
      if (heldBytes <= SMALL_MESSAGE_BYTES || this.isOver) return true;
      this.#room = this.#messages.open({
        resume: () => {
          if (this.#handler.mayRead()) this.#call.resume();
        },
        reject: () => {
          if (this.isOver) return;
          this.abort();
          this.#handler.error(STALLED_MESSAGE);
        },
      });
    }
    if (heldBytes > SMALL_MESSAGE_BYTES) return this.#room.resize(heldBytes);
    this.#releaseParsed();
    return true;
  }

  /** A message that was received is charged until it is parsed; the next large one has a room of its own. */
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
    if (this.#parser === undefined) this.#handler.body(this.#body?.end() ?? "");
    this.#body = undefined;
    this.#releaseParsed();
    this.#handler.end();
  }

  error(error: HttpClientError): void {
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
