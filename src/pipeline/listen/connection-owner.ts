/**
 * Defines the contract between a client connection and its listener.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Linked } from "../../base/linked-list.ts";
import type { StreamPool } from "../../base/memory-budget.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { RequestBody } from "../../core/exchange.ts";
import type { Rejection } from "./edge.ts";
import type { EnteringHead, EntrySink } from "./request-entry.ts";
import type { ResponseOwner } from "./response-writer.ts";

export interface Sweeper {
  readonly sweeps: number;
  readonly sweepMs: number;
}

const NEVER = 2 ** 30;

/** Counts sweeps instead of time, because sweeps do not advance while the process is blocked. */
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
    // One sweep is added, because the next one may follow immediately.
    this.#last = sweeps + Math.ceil(ms / sweepMs) + 1;
  }

  clear(): void {
    this.#last = NEVER;
  }
}

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

export interface ConnectionOwner extends ResponseOwner, Sweeper {
  readonly headersTimeoutMs: number;
  readonly silentPeerMs: number;
  /** Open HTTP/2 streams are charged to this pool. */
  readonly openStreams: StreamPool;
  /** Returns whether memory is so short that new requests are rejected. */
  isFull(): boolean;
  /** Returns whether kept-alive connections are closed even if their last response did not announce it. */
  closesKept(): boolean;
  /** Called when the head of a request has arrived. */
  begin(request: EnteringHead, body: RequestBody, response: EntrySink, socket: Socket): void;
  readonly speaksHttp2: boolean;
  readonly acceptsConnect: boolean;
  /** Called when the client uses HTTP/2. The socket is paused, and the bytes that were read are unshifted. */
  becomeHttp2(connection: OpenConnection, socket: Socket): void;
  /**
   * Returns the response to invalid or incomplete input. `bytes` is undefined if no head was received, or if the
   * request is already recorded.
   */
  reject(bytes: Buffer | undefined, error: GatewayError, socket: Socket): Rejection;
  closed(connection: OpenConnection): void;
  join(joined: JoinedConnections): void;
  unexpected(error: unknown, socket: Socket): void;
}
