/**
 * What a client connection and its listener know of each other: the listener looks at all of them from time to time and
 * ends them; a connection hands over its requests and says when it is gone.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Linked } from "../../base/linked-list.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { RequestBody } from "../../core/exchange.ts";
import type { AnswerOwner } from "./answer.ts";
import type { Refusal } from "./edge.ts";
import type { EnteringHead, EntrySink } from "./request-entry.ts";

export interface Sweeper {
  /** Sweeps until now. */
  readonly sweeps: number;
  readonly sweepMs: number;
}

/** A number of sweeps that is never reached. */
const NEVER = 2 ** 30;

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
    // The next sweep may come at once.
    this.#last = sweeps + Math.ceil(ms / sweepMs) + 1;
  }

  clear(): void {
    this.#last = NEVER;
  }
}

export interface OpenConnection extends Linked<OpenConnection> {
  /** Looked at from time to time: ends it if the client is late. */
  sweep(): void;
  /** The listener goes: nobody waits for an answer here, and none will be given to what comes. */
  closeIfIdle(): void;
  destroy(): void;
}

export interface ConnectionOwner extends AnswerOwner, Sweeper {
  readonly headersTimeoutMs: number;
  readonly silentPeerMs: number;
  /** Also those whose last answer did not say so are closed. Not while a request may be on its way. */
  closesKept(): boolean;
  /** A request has arrived; `answer` is told how it ends. */
  begin(request: EnteringHead, body: RequestBody, answer: EntrySink, socket: Socket): void;
  readonly speaksHttp2: boolean;
  /** The client speaks HTTP/2: the socket is paused, and what was read of it is in it again. */
  becomeHttp2(connection: OpenConnection, socket: Socket): void;
  /** What began as a request and cannot become one; `bytes` are what came of its head, undefined if none came. */
  refuse(bytes: Buffer | undefined, error: GatewayError, socket: Socket): Refusal;
  /** The connection is gone. */
  closed(connection: OpenConnection): void;
  join(client: Duplex, backend: Duplex, firstBytes: Buffer, closed: () => void): void;
  unexpected(error: unknown, socket: Socket): void;
}
