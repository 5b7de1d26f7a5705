/**
 * What a client connection and its listener know of each other: the listener looks at all of them from time to time and
 * ends them; a connection hands over its requests and says when it is gone.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { GatewayError } from "../../core/errors.ts";
import type { RequestBody } from "../../core/exchange.ts";
import type { ParsedRequest } from "../../lib/http1/parse-request-head.ts";
import type { Clock } from "../../lib/process/clock.ts";
import type { Linked } from "../../lib/text/linked-list.ts";
import type { Answer } from "./answer.ts";
import type { Refusal } from "./edge-refusal.ts";
import type { IdleConnections } from "./idle.ts";

export interface OpenConnection extends Linked<OpenConnection> {
  /** Looked at from time to time: ends it if the client is late. */
  sweep(): void;
  /** The listener goes: nobody waits for an answer here, and none will be given to what comes. */
  closeIfIdle(): void;
  destroy(): void;
}

export interface ConnectionOwner {
  readonly clock: Clock;
  readonly idle: IdleConnections;
  /** Answers without an end of their own: ended, not cut, when the listener must go. */
  readonly streams: Set<Answer>;
  /** Counts the sweeps: time that stands still while the process does, so that a late process blames nobody. */
  readonly sweeps: number;
  readonly sweepMs: number;
  readonly headersTimeoutMs: number;
  /** Answers close their connections: the listener goes, or memory is short. */
  isDraining(): boolean;
  /** Also those whose last answer did not say so are closed. Not while a request may be on its way. */
  closesKept(): boolean;
  /** A request has arrived; `answer` is told how it ends. */
  begin(request: ParsedRequest, body: RequestBody, answer: Answer, socket: Socket): void;
  /** What began as a request and cannot become one; `bytes` are what came of its head, undefined if none came. */
  refuse(bytes: Buffer | undefined, error: GatewayError, socket: Socket): Refusal;
  /** A request has ended. */
  ended(): void;
  /** The connection is gone. */
  closed(connection: OpenConnection): void;
  join(client: Duplex, backend: Duplex, firstBytes: Buffer, closed: () => void): void;
  unexpected(error: unknown, socket: Socket): void;
}
