/**
 * Defines the interface of outgoing HTTP, in which a pool sends a request and calls a receiver (`head`, `data`, `end`,
 * `fail`).
 */
import type { Duplex } from "node:stream";
import { ExpectedError } from "../base/errors.ts";
import type { BodyStream } from "./body.ts";
import type { EgressGuard } from "./egress-guard.ts";
import type { HeaderList } from "./headers.ts";

/** `auto` selects the version by ALPN. Without TLS, `http2` connects with prior knowledge. */
export type HttpChoice = "http1" | "http2" | "auto";

export interface HttpAddress {
  readonly protocol: "http" | "https";
  readonly host: string;
  readonly port: number;
  readonly socketPath?: string;
}

export interface HttpTarget extends HttpAddress {
  /** The default is `http1`. */
  readonly http?: HttpChoice;
  readonly tls?: TlsOptions;
  readonly egress: EgressGuard;
  /** Covers the TLS handshake. The default is 10 s. */
  readonly connectTimeoutMs?: number;
}

export const CONNECT_TIMEOUT_MS = 10_000;

export interface TlsOptions {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
  /** The certificate must have one of these DNS names or URIs, instead of the server's name. */
  readonly names?: readonly string[];
  readonly insecure?: boolean;
}

export interface OutgoingRequest {
  readonly method: string;
  /** The path is in origin form and includes the query. */
  readonly path: string;
  /** The list must not contain hop-by-hop headers, which the HTTP client adds itself. */
  readonly headers: HeaderList;
  readonly body?: Buffer | BodyStream | undefined;
  /** True to send `te: trailers` over HTTP/2, which gRPC servers require. */
  readonly wantsTrailers?: boolean;
  /** Set to the protocol, for example `websocket`, if the request is an upgrade request. */
  readonly upgrade?: string | undefined;
}

/**
 * Receives the response to one call. All connections follow this contract:
 * - No method is called before `send` has returned. Later, several methods may be called in one event-loop iteration.
 * - `head` is called once, then `data` any number of times, then `end`. An upgrade calls only `upgraded`. `fail` may be
 *   called at any point. `end`, `upgraded`, and `fail` are final.
 * - No method is called after `abort`, even if `abort` is called inside a callback.
 * - `abort` and `resume` may be called at any time, including inside callbacks, and do nothing once the call is over. A
 *   `resume` inside `data` takes effect even if that `data` then returns false.
 * - After `data` has returned false, bytes from the same socket read may still follow.
 * - If a callback throws, `fail` follows with the kind `internal`, even after `end`, unless the call was aborted.
 */
export interface HttpResponseReceiver {
  head(status: number, headers: HeaderList): void;
  /** Returns false to pause. `HttpCall.resume` continues. */
  data(chunk: Buffer): boolean;
  end(trailers: readonly string[]): void;
  fail(error: HttpClientError): void;
  upgraded?(status: number, headers: HeaderList, socket: Duplex): void;
}

export interface HttpCall {
  readonly isOver: boolean;
  /** Closes the connection or stream unless the response has ended. */
  abort(): void;
  resume(): void;
}

export interface HealthObserver {
  /** Called when a response head or an upgrade arrived. */
  worked(): void;
  /** Called when no connection could be opened. */
  failed(reason: string): void;
}

export interface HttpPool {
  send(request: OutgoingRequest, receiver: HttpResponseReceiver, health?: HealthObserver): HttpCall;
  connections(): { open: number; idle: number };
  /** Lets running requests finish, then closes the connections. */
  close(): void;
}

/**
 * `connect` and `connect-timeout` mean that nothing was sent, `stale` that the server closed a reused connection or
 * refused the stream, `response` that the response is truncated or invalid, `request` that the request could not be
 * sent, and `internal` that the parser or the receiver threw an unexpected error.
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
