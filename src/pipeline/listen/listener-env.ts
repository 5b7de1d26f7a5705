/**
 * Defines the settings, dependencies, and limits of a listener.
 */

import type { ListenOptions } from "node:net";
import type { Clock } from "../../base/clock.ts";
import type { HeapPressure } from "../../base/heap-pressure.ts";
import type { IdSource } from "../../base/ids.ts";
import type { MemoryBudget } from "../../base/memory-budget.ts";
import { SILENT_PEER_MS } from "../../http/h2/life-signs.ts";
import type { ListenerTls } from "../../http/tls-listener.ts";
import type { Logger } from "../../record/log/logger.ts";
import type { PipelineEnv } from "../phases/pipeline-env.ts";

/** Is not the listener itself, because it is used until the socket closes, and the listener only until the next reload. */
export interface ListenerAddress {
  /** If undefined, the listener binds to all interfaces. */
  readonly address: string | undefined;
  readonly port: number;
  /**
   * True if other threads listen on the same port with their own sockets, and the operating system distributes
   * connections.
   */
  readonly isShared?: boolean;
  readonly tls: ListenerTls | undefined;
}

export interface ListenerLimits {
  /** Further connections are closed before they are read. */
  readonly maxConnections: number;
  /** Limits one IPv4 address or IPv6 /64 network, unless it is a trusted proxy. */
  readonly maxConnectionsPerAddress: number;
  /** Limits the open HTTP/2 streams of such an address, over all listeners of the thread. */
  readonly maxStreamsPerAddress: number;
  readonly headersTimeoutMs: number;
  readonly checkIntervalMs: number;
  /**
   * While a stream is open, the gateway sends a PING to an HTTP/2 client that is silent for this long, and disconnects
   * it after three times as long.
   */
  readonly silentPeerMs: number;
  /**
   * An upgraded connection (WebSocket) without data in either direction is closed after this time, or earlier if a side
   * does not read.
   */
  readonly tunnelIdleMs: number;
}

export const LISTENER_LIMITS: ListenerLimits = {
  maxConnections: 10_000,
  maxConnectionsPerAddress: 5_000,
  maxStreamsPerAddress: 5_000,
  headersTimeoutMs: 10_000,
  checkIntervalMs: 1_000,
  silentPeerMs: SILENT_PEER_MS,
  tunnelIdleMs: 3_600_000,
};

export interface ListenerEnv extends PipelineEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly ids: IdSource;
  readonly limits: ListenerLimits;
  readonly heap: HeapPressure;
  readonly memory: MemoryBudget;
  isTrustedPeer(address: string): boolean;
  /** Reports an exception outside of requests. */
  unexpected(error: unknown, client: string | undefined): void;
}

export function listenOptions({
  address,
  port,
  isShared = false,
}: ListenerAddress): ListenOptions & { reusePort?: boolean } {
  return { port, reusePort: isShared, ...(address === undefined ? {} : { host: address }) };
}
