/**
 * The contract of all transports: a channel carries whole JSON-RPC messages to one instance of a server and back.
 * Transports do not interpret the messages.
 */
import type { WireTap } from "../../core/wire.ts";
import type { LoginRequired } from "../protocol/call.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { McpProtocol } from "../protocol/protocol-version.ts";

export interface Outgoing {
  readonly text: string;
  /** The gateway's id, if the message is a request. */
  readonly wireId?: number;
  /** Repeated in an HTTP header (2026-07-28). */
  readonly method?: string;
  /** Additional HTTP headers: name, value, … */
  readonly headers?: readonly string[];
  /** Records sent and received data; undefined unless the request is traced. */
  readonly wire?: WireTap | undefined;
  /** No other request is in flight on this connection. */
  readonly isAlone?: boolean;
}

export interface Channel {
  /** For the trace and the log: `stdio:<name>` or `host:port`. */
  readonly address: string;
  /** The send queue has reached its limit, so new calls should be rejected. */
  readonly isOverloaded: boolean;
  /** Sets the negotiated protocol version, which HTTP repeats in headers. */
  setProtocol(protocol: McpProtocol, version: string): void;
  send(message: Outgoing): void;
  /** The response to this request is no longer needed. */
  abandon(wireId: number): void;
  pause(): void;
  resume(): void;
  /** Resolves when all resources are released. Handlers are not called after `close`. */
  close(): Promise<void>;
  /** For the admin interface. */
  detail(): Record<string, unknown>;
  /** The last stderr lines of a child process. */
  stderrTail?(): readonly string[];
}

export interface ChannelHandlers {
  /** `about` is the id of the request whose stream carried the message, if the transport has a stream per request. */
  message(message: ServerMessage, about: number | undefined): void;
  /** A request failed. The channel itself stays usable. */
  failed(wireId: number, reason: string, error?: LoginRequired): void;
  /** The server dropped the session. It did not process the given request, if any. */
  expired(wireId: number | undefined): void;
  /** The channel ended. */
  closed(reason: string): void;
}
