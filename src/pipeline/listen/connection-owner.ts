/**
 * The contract between a client connection and its listener. The listener sweeps and closes connections; a connection
 * passes on its requests and reports when it is closed.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Linked } from "../../base/linked-list.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { RequestBody } from "../../core/exchange.ts";
import type { Rejection } from "./edge.ts";
import type { EnteringHead, EntrySink } from "./request-entry.ts";
import type { ResponseOwner } from "./response-writer.ts";

export interface Sweeper {
  /** The number of sweeps so far. */
  readonly sweeps: number;
  readonly sweepMs: number;
}

/** A number of sweeps that is never reached. */
const NEVER = 2 ** 30;

/**
 * A deadline that is checked periodically, without its own timer. It counts sweeps, which do not advance while the
 * process is blocked, so that clients are not blamed for a slow process.
 */
export class SweepDeadline {
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
    // The next sweep may follow immediately.
    this.#last = sweeps + Math.ceil(ms / sweepMs) + 1;
  }

  clear(): void {
    this.#last = NEVER;
  }
}

export interface OpenConnection extends Linked<OpenConnection> {
  /** Called periodically; closes the connection if the client exceeds its deadline. */
  sweep(): void;
  /** Called when the listener shuts down: closes the connection if no response is pending. */
  closeIfIdle(): void;
  destroy(): void;
}

/** Two connections that become a tunnel. */
export interface JoinedConnections {
  readonly client: Duplex;
  readonly backend: Duplex;
  /** Bytes that the client sent together with its request. */
  readonly firstBytes: Buffer;
  /** The client whose memory the tunnel uses. */
  readonly chargedTo: string;
  /** Called once, when both connections are closed. */
  closed(): void;
}

export interface ConnectionOwner extends ResponseOwner, Sweeper {
  readonly headersTimeoutMs: number;
  readonly silentPeerMs: number;
  /**
   * Whether kept-alive connections are closed even if their last response did not announce it. Not while a request may
   * be in flight.
   */
  closesKept(): boolean;
  /** A request has arrived. `response` is notified of its end. */
  begin(request: EnteringHead, body: RequestBody, response: EntrySink, socket: Socket): void;
  readonly speaksHttp2: boolean;
  /** The client uses HTTP/2. The socket is paused, and the bytes that were read are unshifted. */
  becomeHttp2(connection: OpenConnection, socket: Socket): void;
  /** Input that cannot become a request. `bytes` is the received part of its head; undefined if there is none. */
  reject(bytes: Buffer | undefined, error: GatewayError, socket: Socket): Rejection;
  /** The connection is closed. */
  closed(connection: OpenConnection): void;
  join(joined: JoinedConnections): void;
  unexpected(error: unknown, socket: Socket): void;
}
