/**
 * Defines the contract of all transports. A channel carries whole JSON-RPC messages to and from one server.
 */
import type { WireTap } from "../../core/wire.ts";
import type { LoginRequired } from "../protocol/call.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { McpProtocol } from "../protocol/protocol-version.ts";

export interface Outgoing {
  readonly text: string;
  /** The id that the gateway assigned, if the message is a request. */
  readonly wireId?: number;
  readonly method?: string;
  /** Alternating names and values of additional HTTP headers. */
  readonly headers?: readonly string[];
  /** Set only if the message is traced or sampled. */
  readonly wire?: WireTap | undefined;
  readonly isAlone?: boolean;
}

/** The reason of a channel that was closed because the answers to its server's requests no longer fit. */
export const TOO_MANY_REQUESTS = "was disconnected because it sends requests faster than it accepts the responses";

export interface Channel {
  /** Identifies the channel in traces, for example as `stdio:<name>` or `host:port`. */
  readonly address: string;
  /** True if responses have no HTTP head. The connection then reports them to the trace. */
  readonly isPipe?: boolean;
  /** True if the caller must reject new calls. */
  readonly isOverloaded: boolean;
  setProtocol(protocol: McpProtocol, version: string): void;
  send(message: Outgoing): void;
  /** Releases the resources of a request whose response is no longer needed. */
  abandon(wireId: number): void;
  pause(): void;
  resume(): void;
  close(): Promise<void>;
  detail(): Record<string, unknown>;
  stderrTail?(): readonly string[];
}

export interface ChannelHandlers {
  /** `about` is the id of the request whose stream carried the message, for transports with one stream per request. */
  message(message: ServerMessage, about: number | undefined): void;
  failed(wireId: number, reason: string, error?: LoginRequired): void;
  /** Reports that the server dropped the session. The server did not process the given request. */
  expired(wireId: number | undefined): void;
  closed(reason: string): void;
}
