/**
 * The interface of outgoing HTTP: a pool sends a request and calls a receiver (`head`, `data`, `end`, `fail`). Backends
 * depend only on this, not on the connections behind it. Promises, streams and abort controllers per request would each
 * cost 1.1 to 2.2 times the CPU (docs/adr/0003).
 */
import type { Duplex } from "node:stream";
import { ExpectedError } from "../base/errors.ts";
import type { BodyStream } from "./body.ts";
import type { HeaderList } from "./headers.ts";

/** `auto`: HTTP/2 if the server chooses it by ALPN. Without TLS, HTTP/2 is used with prior knowledge. */
export type HttpChoice = "http1" | "http2" | "auto";

export interface HttpTarget {
  readonly protocol: "http" | "https";
  /** Default: `http1`. */
  readonly http?: HttpChoice;
  readonly host: string;
  readonly port: number;
  /** A unix domain socket to connect to instead of host and port. */
  readonly socketPath?: string;
  readonly tls?: TlsOptions;
  /** The address is from a cluster document, so addresses of this machine are rejected. */
  readonly isConfined?: boolean | undefined;
}

export interface TlsOptions {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
  /** The certificate must have one of these DNS names or URIs, instead of the server's name. */
  readonly names?: readonly string[];
  /** Only for tests and development: the certificate is not verified. */
  readonly insecure?: boolean;
}

export interface OutgoingRequest {
  readonly method: string;
  /** Origin form: path and query. */
  readonly path: string;
  /** Without hop-by-hop headers; the HTTP client adds its own. */
  readonly headers: HeaderList;
  readonly body?: Buffer | BodyStream | undefined;
  /** Trailers are read (`te: trailers`), which HTTP/2 servers such as gRPC require. */
  readonly wantsTrailers?: boolean;
  /** The protocol of an upgrade request, for example `websocket`. */
  readonly upgrade?: string | undefined;
}

/**
 * The receiver of the response to one call. `HttpAttempt` enforces this contract for every connection:
 * - Nothing is called before `send` has returned. After that, several methods may be called in one turn.
 * - `head` is called once, then `data` any number of times, then `end`; or `upgraded` alone; or `fail` at any point.
 *   `end`, `upgraded` and `fail` are final.
 * - Nothing is called after `abort`, also if `abort` is called inside a callback.
 * - `abort` and `resume` may be called inside any callback and at any later time; they do nothing once the call is
 *   over. A `resume` inside `data` takes effect even if that `data` then returns false.
 * - After `data` has returned false, bytes that were already read (at most one read of the socket) may still follow.
 * - A callback that throws fails its own call: the connection is closed and `fail` follows with the kind `internal`,
 *   also after an `end` that threw. An exception of `fail` becomes a process warning.
 */
export interface HttpResponseReceiver {
  head(status: number, headers: HeaderList): void;
  /** Returns false to pause; `HttpCall.resume` continues. */
  data(chunk: Buffer): boolean;
  end(trailers: readonly string[]): void;
  fail(error: HttpClientError): void;
  upgraded?(status: number, headers: HeaderList, socket: Duplex): void;
}

export interface HttpCall {
  /** The receiver gets no further calls. */
  readonly isOver: boolean;
  /** Closes the connection unless the response has ended. */
  abort(): void;
  resume(): void;
}

/** Learns from calls whether a server accepts connections. */
export interface HealthObserver {
  /** A response head arrived. */
  worked(): void;
  /** No connection could be opened. */
  failed(reason: string): void;
}

export interface HttpPool {
  send(request: OutgoingRequest, receiver: HttpResponseReceiver, health?: HealthObserver): HttpCall;
  connections(): { open: number; idle: number };
  /** Lets running requests finish, then closes the connections. */
  close(): void;
}

/**
 * `connect`: nothing was sent. `stale`: a reused connection was already closed. `response`: the response broke off or
 * was invalid. `request`: the request cannot be sent. `internal`: the consumer threw.
 */
export type HttpClientErrorKind = "connect" | "connect-timeout" | "stale" | "response" | "request" | "internal";

export class HttpClientError extends ExpectedError {
  readonly kind: HttpClientErrorKind;

  constructor(kind: HttpClientErrorKind, message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "HttpClientError";
    this.kind = kind;
  }
}
