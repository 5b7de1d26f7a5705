/**
 * The one file that knows the HTTP client library (undici). It offers a pool per target and one small callback
 * interface: head, data, end, error, abort, so that the client behind it can be replaced without touching a
 * backend. Promises, streams and abort controllers per request would cost 1.1 to 2.2 times the CPU each.
 */
import type { Duplex, Readable } from "node:stream";
import { Client, type Dispatcher } from "undici";
import { HeaderList } from "./headers.ts";

export interface HttpTarget {
  readonly protocol: "http" | "https";
  readonly host: string;
  readonly port: number;
  /** A unix domain socket to connect to instead of host and port. */
  readonly socketPath?: string;
  readonly tls?: TlsOptions;
}

export interface TlsOptions {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
  /** Only for tests and development: the certificate is not verified. */
  readonly insecure?: boolean;
}

export interface OutgoingRequest {
  readonly method: string;
  /** Origin form: path and query. */
  readonly path: string;
  /** Without hop-by-hop headers: the client adds its own. */
  readonly headers: HeaderList;
  readonly body?: Buffer | Readable | undefined;
  /** The protocol of an upgrade request, for example `websocket`. */
  readonly upgrade?: string | undefined;
}

export interface ResponseHandler {
  head(status: number, headers: HeaderList): void;
  /** Returns false to pause; `HttpCall.resume` goes on. */
  data(chunk: Buffer): boolean;
  end(trailers: string[]): void;
  /** Called at most once, and not after `end`. */
  error(error: HttpClientError): void;
  upgraded?(status: number, headers: HeaderList, socket: Duplex): void;
}

export interface HttpCall {
  abort(): void;
  resume(): void;
}

export interface HttpPool {
  send(request: OutgoingRequest, handler: ResponseHandler): HttpCall;
  connections(): { open: number; idle: number };
  /** Lets running requests finish, then closes the connections. */
  close(): void;
}

/** `connect`: nothing was sent. `stale`: a kept connection turned out to be closed. `response`: it broke or made no sense. */
export type HttpClientErrorKind = "connect" | "connect-timeout" | "stale" | "response" | "request" | "aborted";

export class HttpClientError extends Error {
  readonly kind: HttpClientErrorKind;

  constructor(kind: HttpClientErrorKind, message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "HttpClientError";
    this.kind = kind;
  }
}

/** Below the 5 s after which a Node server closes an idle connection, so that we close first. */
const IDLE_MS = 4_000;
const CONNECT_TIMEOUT_MS = 10_000;
/** Larger response heads than this are refused (the request side allows 16 KiB). */
const MAX_RESPONSE_HEAD_BYTES = 32 * 1024;

/** One connection. The pool is a stack: the most recently used connection is the warmest, and taking it is O(1). */
interface Connection {
  client: Client;
  /** Requests completed on the present socket. */
  served: number;
  idle: boolean;
  gone: boolean;
}

export function openHttpPool(target: HttpTarget): HttpPool {
  const origin = `${target.protocol}://${target.host.includes(":") ? `[${target.host}]` : target.host}:${target.port}`;
  const idle: Connection[] = [];
  let open = 0;
  let closed = false;

  function connect(): Connection {
    const client = new Client(origin, {
      pipelining: 1,
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: 600_000,
      headersTimeout: 0,
      bodyTimeout: 0,
      maxHeaderSize: MAX_RESPONSE_HEAD_BYTES,
      connect: {
        timeout: CONNECT_TIMEOUT_MS,
        ...(target.socketPath === undefined ? {} : { socketPath: target.socketPath }),
        ...tlsConnectOptions(target.tls),
      },
    });
    const connection: Connection = { client, served: 0, idle: false, gone: false };
    open += 1;
    client.on("disconnect", () => {
      connection.served = 0;
      if (connection.idle) retire(connection);
    });
    return connection;
  }

  function retire(connection: Connection): void {
    if (connection.gone) return;
    connection.gone = true;
    open -= 1;
    connection.client.destroy().catch(ignore);
  }

  function take(): Connection {
    for (let kept = idle.pop(); kept !== undefined; kept = idle.pop()) {
      if (kept.gone) continue;
      kept.idle = false;
      return kept;
    }
    return connect();
  }

  function giveBack(connection: Connection, reusable: boolean): void {
    if (!reusable || closed) {
      retire(connection);
      return;
    }
    connection.served += 1;
    connection.idle = true;
    idle.push(connection);
  }

  return {
    send(request, handler) {
      const connection = take();
      const call = new Call(connection, handler, giveBack);
      try {
        connection.client.dispatch(
          {
            path: request.path,
            method: request.method as Dispatcher.HttpMethod,
            headers: request.headers.pairs,
            body: request.body ?? null,
            upgrade: request.upgrade ?? null,
          },
          call,
        );
      } catch (error) {
        call.onError(error as Error);
      }
      return call;
    },
    connections: () => ({ open, idle: idle.reduce((count, one) => count + (one.gone ? 0 : 1), 0) }),
    close() {
      closed = true;
      for (const connection of idle.splice(0)) retire(connection);
    },
  };
}

/** The library's handler and our call in one object: one allocation per request. */
class Call implements HttpCall {
  readonly #connection: Connection;
  readonly #handler: ResponseHandler;
  readonly #giveBack: (connection: Connection, reusable: boolean) => void;
  readonly #reused: boolean;
  #abortRequest: ((error?: Error) => void) | undefined;
  #resumeResponse: (() => void) | undefined;
  #state: "connecting" | "sent" | "answering" | "done" = "connecting";
  #aborted = false;

  constructor(
    connection: Connection,
    handler: ResponseHandler,
    giveBack: (connection: Connection, reusable: boolean) => void,
  ) {
    this.#connection = connection;
    this.#handler = handler;
    this.#giveBack = giveBack;
    this.#reused = connection.served > 0;
  }

  abort(): void {
    if (this.#state === "done" || this.#aborted) return;
    this.#aborted = true;
    const reason = new HttpClientError("aborted", "aborted");
    if (this.#abortRequest) this.#abortRequest(reason);
    // Before the connection stands there is no request to abort: the connection attempt itself is given up.
    else this.#connection.client.destroy(reason).catch(ignore);
  }

  resume(): void {
    if (this.#state !== "done") this.#resumeResponse?.();
  }

  onConnect(abort: (error?: Error) => void): void {
    this.#state = "sent";
    this.#abortRequest = abort;
    if (this.#aborted) abort(new HttpClientError("aborted", "aborted"));
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void): boolean {
    // 1xx answers are between us and the backend (RFC 9110 section 15.2).
    if (status < 200) return true;
    this.#state = "answering";
    this.#resumeResponse = resume;
    this.#handler.head(status, headersOf(raw));
    return !this.#aborted;
  }

  onData(chunk: Buffer): boolean {
    return this.#handler.data(chunk);
  }

  onComplete(trailers: Buffer[] | string[] | null): void {
    if (this.#state === "done") return;
    this.#state = "done";
    this.#giveBack(this.#connection, true);
    this.#handler.end(trailers === null ? [] : (trailers as Buffer[]).map(String));
  }

  onUpgrade(status: number, raw: Buffer[] | null, socket: Duplex): void {
    this.#state = "done";
    this.#giveBack(this.#connection, false);
    this.#handler.upgraded?.(status, headersOf(raw ?? []), socket);
  }

  onError(error: Error): void {
    if (this.#state === "done") return;
    const classified = this.#classify(error);
    this.#state = "done";
    this.#giveBack(this.#connection, false);
    this.#handler.error(classified);
  }

  #classify(error: Error & { code?: string }): HttpClientError {
    if (this.#aborted) return new HttpClientError("aborted", "aborted", error);
    const message = describe(error);
    if (
      error.code === "UND_ERR_INVALID_ARG" ||
      error.code === "UND_ERR_NOT_SUPPORTED" ||
      error.code === "UND_ERR_REQ_CONTENT_LENGTH_MISMATCH"
    ) {
      return new HttpClientError("request", message, error);
    }
    if (this.#state === "connecting") {
      return new HttpClientError(
        error.code === "UND_ERR_CONNECT_TIMEOUT" ? "connect-timeout" : "connect",
        message,
        error,
      );
    }
    return new HttpClientError(this.#state === "sent" && this.#reused ? "stale" : "response", message, error);
  }
}

function describe(error: Error & { code?: string; errors?: Error[] }): string {
  // Connecting to a name with several addresses fails with one error per address; the first says enough.
  const first = error.message === "" && error.errors?.[0] ? error.errors[0] : error;
  return first.message === "" ? (error.code ?? "connection failed") : first.message;
}

function headersOf(raw: Buffer[]): HeaderList {
  const pairs = new Array<string>(raw.length);
  for (let i = 0; i < raw.length; i += 2) {
    pairs[i] = (raw[i] as Buffer).toString("latin1").toLowerCase();
    pairs[i + 1] = (raw[i + 1] as Buffer).toString("latin1");
  }
  return new HeaderList(pairs);
}

function tlsConnectOptions(tls: TlsOptions | undefined): Record<string, unknown> {
  if (!tls) return {};
  return {
    ...(tls.ca === undefined ? {} : { ca: tls.ca }),
    ...(tls.cert === undefined ? {} : { cert: tls.cert }),
    ...(tls.key === undefined ? {} : { key: tls.key }),
    ...(tls.servername === undefined ? {} : { servername: tls.servername }),
    ...(tls.insecure === true ? { rejectUnauthorized: false } : {}),
  };
}

function ignore(): void {
  // A connection that is thrown away may fail to close; nobody is left to care.
}
