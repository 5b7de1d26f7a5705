/**
 * Manages the connections and tunnels of one listener, limits those of each client address, and defines what a
 * connection and its listener offer each other.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { fileDescriptors } from "../../base/file-descriptors.ts";
import { type Linked, LinkedList } from "../../base/linked-list.ts";
import type { StreamPool } from "../../base/memory-budget.ts";
import type { GatewayError } from "../../core/errors.ts";
import type { RequestBody } from "../../core/exchange.ts";
import type { ReceivedHead } from "../../http/request-head.ts";
import type { Served } from "../phases/pipeline-env.ts";
import { addressKey } from "./backlog.ts";
import { type StreamShare, streamShares } from "./http2/stream-shares.ts";
import { watchIdle } from "./idle.ts";
import type { ListenerEnv } from "./listener-env.ts";
import { type EntrySink, nameOf, type Rejection, type RequestEntry } from "./request-entry.ts";
import type { ResponseOwner } from "./response-writer.ts";
import { Tunnel } from "./tunnel.ts";

interface Sweeper {
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

interface JoinedConnections {
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
  /** Limits the open streams of one share. */
  readonly maxStreamsPerAddress: number;
  /** Returns the share of the connection's address, or undefined if its streams are not limited. */
  streamShare(socket: Socket): StreamShare | undefined;
  /** Returns whether memory is so short that new requests are rejected. */
  isFull(): boolean;
  /** Returns whether kept-alive connections are closed even if their last response did not announce it. */
  closesKept(): boolean;
  /** Called when the head of a request has arrived. */
  begin(request: ReceivedHead, body: RequestBody, response: EntrySink, socket: Socket): void;
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

/** Creates the connection of a socket for each version of HTTP. */
export interface ConnectionKinds {
  http1(socket: Socket, owner: ConnectionOwner): OpenConnection;
  http2(socket: Socket, owner: ConnectionOwner): OpenConnection;
}

export interface OpenConnections {
  /** Later requests use this configuration. */
  serve(served: Served): void;
  readonly speaksHttp2: boolean;
  add(socket: Socket, protocol: keyof ConnectionKinds): void;
  active(): { connections: number; requests: number };
  /** Closes idle connections after `lingerMs`. */
  drain(lingerMs: number): Promise<void>;
  destroy(): void;
}

export function createOpenConnections(
  first: Served,
  env: ListenerEnv,
  entry: RequestEntry,
  open: ConnectionKinds,
): OpenConnections {
  let served = first;
  let draining = false;
  let isLingering = false;
  let requests = 0;
  let sweeps = 0;
  let resolveDrained: () => void = ignore;
  const drained = new Promise<void>((resolve) => {
    resolveDrained = resolve;
  });
  const idle = watchIdle(env.clock);
  const connections = new LinkedList<OpenConnection>();
  const tunnels = new Set<Tunnel>();

  const owner: ConnectionOwner = {
    clock: env.clock,
    idle,
    waitingBytes: env.memory.streams,
    openStreams: env.memory.openStreams,
    maxStreamsPerAddress: env.limits.maxStreamsPerAddress,
    streamShare: ({ remoteAddress }) =>
      // As for connections, trusted proxies and Unix sockets are not limited.
      remoteAddress === undefined || env.isTrustedPeer(remoteAddress) ? undefined : streamShares.join(remoteAddress),
    isFull: () => env.heap.level === "full",
    streams: new LinkedList(),
    sweepMs: env.limits.checkIntervalMs,
    get sweeps() {
      return sweeps;
    },
    headersTimeoutMs: env.limits.headersTimeoutMs,
    silentPeerMs: env.limits.silentPeerMs,
    isDraining: () => draining || env.heap.level !== "normal",
    closesKept: () => (draining && !isLingering) || env.heap.level !== "normal",
    begin(request, body, response, socket) {
      requests += 1;
      entry.begin(served, request, body, response, socket);
    },
    reject: (bytes, error, socket) => entry.reject(served, bytes, error, socket),
    ended() {
      requests -= 1;
      resolveIfDrained();
    },
    closed(connection) {
      connections.remove(connection);
      resolveIfDrained();
    },
    get speaksHttp2() {
      return served.listener.http2 !== false;
    },
    get acceptsConnect() {
      return served.listener.forwardProxy === true;
    },
    becomeHttp2(connection, socket) {
      connections.remove(connection);
      connections.add(open.http2(socket, owner));
    },
    join,
    unexpected: (error, socket) => env.unexpected(error, nameOf(socket)),
  };

  function resolveIfDrained(): void {
    if (draining && requests === 0 && (!isLingering || connections.size === 0)) resolveDrained();
  }

  function join({ client, backend, firstBytes, chargedTo, isWebSocket, closed }: JoinedConnections): void {
    const tunnel = new Tunnel(client, backend, {
      clock: env.clock,
      waitingBytes: env.memory.streams,
      chargedTo,
      isWebSocket,
      idle,
      idleLimitMs: env.limits.tunnelIdleMs,
      closed() {
        tunnels.delete(tunnel);
        closed();
      },
      unexpected: (error) => env.unexpected(error, nameOf(client as Socket)),
    });
    tunnels.add(tunnel);
    tunnel.start(firstBytes);
    if (draining) tunnel.goAway();
  }

  const sweep = env.clock.every(env.limits.checkIntervalMs, () => {
    sweeps += 1;
    connections.each((connection) => connection.sweep());
  });

  return {
    serve(next) {
      served = next;
    },
    get speaksHttp2() {
      return owner.speaksHttp2;
    },
    add(socket, protocol) {
      connections.add(open[protocol](socket, owner));
    },
    active: () => ({ connections: connections.size, requests }),
    drain(lingerMs) {
      draining = true;
      isLingering = lingerMs > 0 && connections.size > 0;
      const closeIdle = (): void => {
        isLingering = false;
        connections.each((connection) => connection.closeIfIdle());
        if (requests === 0) resolveDrained();
      };
      if (isLingering) env.clock.after(lingerMs, closeIdle);
      else closeIdle();
      // Tunnels have no defined end, so a drain closes them.
      for (const tunnel of tunnels) tunnel.goAway();
      return drained;
    },
    destroy() {
      idle.stop();
      sweep.cancel();
      owner.streams.each((stream) => stream.finishStream());
      for (const tunnel of tunnels) tunnel.destroy();
      connections.each((connection) => connection.destroy());
      if (draining) resolveDrained();
    },
  };
}

function ignore(): void {
  // Nothing waits for the drain yet.
}

const LOG_REJECTED_EVERY_MS = 10_000;

interface ConnectionLimits {
  /**
   * Counts the connection for its address. Destroys it and returns false if the address has too many, or if too few
   * file descriptors are left.
   */
  admit(socket: Socket): boolean;
  logRejected(message: string, limit: number): void;
}

interface ConnectionLimitsEnv extends Pick<ListenerEnv, "clock" | "logger" | "isTrustedPeer"> {
  readonly limits: Pick<ListenerEnv["limits"], "maxConnectionsPerAddress">;
}

export function createConnectionLimits(env: ConnectionLimitsEnv): ConnectionLimits {
  let rejected = 0;
  let nextLogMs = 0;
  const perAddress = new Map<string, number>();

  function logRejected(message: string, limit: number): void {
    rejected += 1;
    const nowMs = env.clock.monotonicMs();
    if (nowMs < nextLogMs) return;
    nextLogMs = nowMs + LOG_REJECTED_EVERY_MS;
    env.logger.warn(message, { limit, refused: rejected });
    rejected = 0;
  }

  return {
    admit(socket) {
      const descriptor = descriptorOf(socket);
      if (descriptor !== undefined && !fileDescriptors.mayAccept(descriptor)) {
        socket.destroy();
        logRejected("connections rejected: too many files are open (ulimit -n)", descriptor);
        return false;
      }
      const { remoteAddress } = socket;
      // Connections of trusted proxies and of Unix sockets are not limited.
      if (remoteAddress === undefined || env.isTrustedPeer(remoteAddress)) return true;
      const address = addressKey(remoteAddress);
      const open = perAddress.get(address) ?? 0;
      const limit = env.limits.maxConnectionsPerAddress;
      if (open >= limit) {
        socket.destroy();
        logRejected("connections rejected: one address has too many open", limit);
        return false;
      }
      perAddress.set(address, open + 1);
      socket.once("close", () => {
        const left = (perAddress.get(address) ?? 0) - 1;
        if (left > 0) perAddress.set(address, left);
        else perAddress.delete(address);
      });
      return true;
    },
    logRejected,
  };
}

/** Returns undefined on systems without numbered sockets. */
function descriptorOf(socket: Socket): number | undefined {
  const { _handle: handle } = socket as unknown as { readonly _handle?: { readonly fd?: number } | null };
  return handle?.fd;
}
