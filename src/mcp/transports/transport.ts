/**
 * A connection to one instance of a server that carries whole JSON-RPC messages: a child's pipes, a streamable
 * HTTP session, or the old pair of event stream and POST. What is said over it is not its concern.
 */
import type { WireTap } from "../../core/wire.ts";
import type { LoginRequired } from "../protocol/call.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { McpProtocol } from "../protocol/protocol-version.ts";

export interface Outgoing {
  readonly text: string;
  /** Our own id if it is a request. */
  readonly wireId?: number;
  /** What HTTP headers repeat of the body (2026-07-28). */
  readonly method?: string;
  /** More HTTP headers: name, value, … */
  readonly headers?: readonly string[];
  /** Told what goes out and what comes back; undefined unless somebody watches. */
  readonly wire?: WireTap | undefined;
  /** A request while no other is under way. */
  readonly isAlone?: boolean;
}

export interface Channel {
  /** For the trace and the log: `stdio:<name>` or `host:port`. */
  readonly address: string;
  /** What waits to be sent has reached a limit: new calls are better refused. */
  readonly isOverloaded: boolean;
  /** What was agreed with the server; HTTP carries it in headers. */
  setProtocol(era: McpProtocol, version: string): void;
  send(message: Outgoing): void;
  /** Nobody waits for this answer any more. */
  abandon(wireId: number): void;
  pause(): void;
  resume(): void;
  /** Resolves when nothing is left of it. Handlers are not called any more. */
  close(): Promise<void>;
  /** For the admin interface. */
  detail(): Record<string, unknown>;
  /** What a process last wrote to stderr. */
  stderrTail?(): readonly string[];
}

export interface ChannelHandlers {
  /** `about` is the request on whose stream the message came, where the transport knows. */
  message(message: ServerMessage, about: number | undefined): void;
  /** A request will get no answer; the channel itself may go on. */
  failed(wireId: number, reason: string, error?: LoginRequired): void;
  /** The server forgot the session. The request on which it showed, if any, was not looked at. */
  expired(wireId: number | undefined): void;
  /** Nothing more will come. */
  closed(reason: string): void;
}
