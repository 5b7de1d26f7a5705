/**
 * Opens a listening socket, owns its connections and tunnels, limits the connections of each client address, and stops
 * accepting to drain.
 */
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Clock, Timer } from "../../base/clock.ts";
import { fileDescriptors } from "../../base/file-descriptors.ts";
import { LinkedList } from "../../base/linked-list.ts";
import type { StreamPool } from "../../base/memory-budget.ts";
import { fairReads } from "../../http/h1/socket-reads.ts";
import type { ListenerTls } from "../../http/tls-listener.ts";
import type { Served } from "../phases/pipeline-env.ts";
import { addressKey } from "./backlog.ts";
import {
  ClientConnection,
  type ConnectionOwner,
  type JoinedConnections,
  type OpenConnection,
} from "./client-connection.ts";
import { Http2Connection } from "./http2/http2-connection.ts";
import { type IdleConnections, watchIdle } from "./idle.ts";
import { type ListenerAddress, type ListenerEnv, listenOptions } from "./listener-env.ts";
import { createProxiedConnections, type ProxiedConnections } from "./proxied-connections.ts";
import { nameOf } from "./request-entry.ts";
import type { OpenEndedResponse } from "./response-writer.ts";
import { createTlsAcceptor, type TlsAcceptor } from "./tls-acceptor.ts";
import { Tunnel } from "./tunnel.ts";

export interface OpenListener {
  readonly port: number;
  /** Later requests use this configuration. */
  serve(served: Served): void;
  /** Later handshakes use these settings, and open connections stay. */
  setTls(tls: ListenerTls): void;
  active(): { connections: number; requests: number };
  /** Stops accepting, and closes idle connections after `lingerMs` (by default immediately). */
  drain(lingerMs?: number): Promise<void>;
  destroy(): void;
}

export class ListenerConnections implements ConnectionOwner {
  served: Served;
  requests = 0;
  sweeps = 0;
  readonly env: ListenerEnv;
  readonly scheme: "http" | "https";
  readonly identities: WeakMap<Socket, string> | undefined;
  readonly proxied: ProxiedConnections;
  readonly clock: Clock;
  readonly idle: IdleConnections;
  readonly waitingBytes: StreamPool;
  readonly streams = new LinkedList<OpenEndedResponse>();
  readonly sweepMs: number;
  readonly #connections = new LinkedList<OpenConnection>();
  readonly #tunnels = new Set<Tunnel>();
  readonly #sweep: Timer;
  readonly #drained: Promise<void>;
  #resolveDrained: () => void = ignore;
  #hasDrainStarted = false;
  #isLingering = false;

  constructor(env: ListenerEnv, scheme: "http" | "https", served: Served) {
    this.env = env;
    this.scheme = scheme;
    this.served = served;
    this.identities = scheme === "https" ? new WeakMap() : undefined;
    this.proxied = createProxiedConnections(env);
    this.clock = env.clock;
    this.idle = watchIdle(env.clock);
    this.waitingBytes = env.memory.streams;
    this.sweepMs = env.limits.checkIntervalMs;
    this.#sweep = env.clock.every(this.sweepMs, () => {
      this.sweeps += 1;
      this.#connections.each((connection) => connection.sweep());
    });
    this.#drained = new Promise((resolve) => {
      this.#resolveDrained = resolve;
    });
  }

  add(socket: Socket, protocol: "http1" | "http2"): void {
    this.#connections.add(
      protocol === "http1" ? new ClientConnection(socket, this) : new Http2Connection(socket, this),
    );
  }

  becomeHttp2(connection: OpenConnection, socket: Socket): void {
    this.#connections.remove(connection);
    this.add(socket, "http2");
  }

  closed(connection: OpenConnection): void {
    this.#connections.remove(connection);
    this.#resolveIfDrained();
  }

  ended(): void {
    this.requests -= 1;
    this.#resolveIfDrained();
  }

  isDraining(): boolean {
    return this.#hasDrainStarted || this.env.heap.level !== "normal";
  }

  closesKept(): boolean {
    return (this.#hasDrainStarted && !this.#isLingering) || this.env.heap.level !== "normal";
  }

  unexpected(error: unknown, socket: Socket): void {
    this.env.unexpected(error, nameOf(socket));
  }

  join({ client, backend, firstBytes, chargedTo, isWebSocket, closed }: JoinedConnections): void {
    const tunnel = new Tunnel(client, backend, {
      clock: this.clock,
      waitingBytes: this.waitingBytes,
      chargedTo,
      isWebSocket,
      idle: this.idle,
      idleLimitMs: this.env.limits.tunnelIdleMs,
      closed: () => {
        this.#tunnels.delete(tunnel);
        closed();
      },
      unexpected: (error) => this.unexpected(error, client as Socket),
    });
    this.#tunnels.add(tunnel);
    tunnel.start(firstBytes);
    if (this.#hasDrainStarted) tunnel.goAway();
  }

  active(): { connections: number; requests: number } {
    return { connections: this.#connections.size, requests: this.requests };
  }

  /** Closes idle connections after `lingerMs`. */
  drain(lingerMs: number): Promise<void> {
    this.#hasDrainStarted = true;
    this.#isLingering = lingerMs > 0 && this.#connections.size > 0;
    const closeIdle = (): void => {
      this.#isLingering = false;
      this.#connections.each((connection) => connection.closeIfIdle());
      if (this.requests === 0) this.#resolveDrained();
    };
    // Timers run before sockets are read, so a request that arrived while the process was busy may not have been read yet.
    if (this.#isLingering) this.clock.after(lingerMs, () => setImmediate(closeIdle));
    else closeIdle();
    // Tunnels have no defined end, so a drain closes them.
    for (const tunnel of this.#tunnels) tunnel.goAway();
    return this.#drained;
  }

  destroy(): void {
    this.idle.stop();
    this.#sweep.cancel();
    this.proxied.destroy();
    this.streams.each((stream) => stream.finishStream());
    for (const tunnel of this.#tunnels) tunnel.destroy();
    this.#connections.each((connection) => connection.destroy());
    if (this.#hasDrainStarted) this.#resolveDrained();
  }

  #resolveIfDrained(): void {
    if (this.#hasDrainStarted && this.requests === 0 && (!this.#isLingering || this.#connections.size === 0))
      this.#resolveDrained();
  }
}

function ignore(): void {
  // Nothing waits for the drain yet.
}

/**
 * Rejects with the system's error (EADDRINUSE, EACCES, …) if the address cannot be bound. `inheritedFd` is already
 * listening and replaces the address.
 */
export function openListener(
  at: ListenerAddress,
  first: Served,
  env: ListenerEnv,
  inheritedFd?: number,
): Promise<OpenListener> {
  const limits = createConnectionLimits(env);
  const connections = new ListenerConnections(env, at.tls ? "https" : "http", first);
  /** Includes connections during their TLS handshake. */
  const tlsSockets = new Set<Socket>();

  function acceptorFor(tls: ListenerTls): TlsAcceptor {
    return createTlsAcceptor(tls, {
      handshakeTimeoutMs: env.limits.headersTimeoutMs,
      protocols: connections.served.listener.http2 === false ? ["http/1.1"] : ["h2", "http/1.1"],
      opened(socket, identity) {
        if (identity !== undefined) connections.identities?.set(socket, identity);
        connections.add(socket, socket.alpnProtocol === "h2" ? "http2" : "http1");
      },
    });
  }

  let acceptor = at.tls && acceptorFor(at.tls);
  // With `allowHalfOpen`, the connection decides what to do when the client closes its side.
  const server: Server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    fairReads.accepted();
    if (!limits.admit(socket)) return;
    const { proxyProtocol } = connections.served.listener;
    if (proxyProtocol === undefined) enter(socket);
    else connections.proxied.enter(socket, proxyProtocol, () => enter(socket));
  });

  function enter(socket: Socket): void {
    if (acceptor === undefined) {
      connections.add(socket, "http1");
      return;
    }
    tlsSockets.add(socket);
    socket.once("close", () => tlsSockets.delete(socket));
    acceptor.enter(socket);
  }

  server.maxConnections = env.limits.maxConnections;
  server.on("drop", () => {
    fairReads.accepted();
    limits.logRejected("connections rejected: too many are open", env.limits.maxConnections);
  });
  return new Promise((resolve, reject) => {
    const failed = (error: Error): void => {
      connections.destroy();
      reject(error);
    };
    server.once("error", failed);
    server.listen(inheritedFd === undefined ? listenOptions(at) : { fd: inheritedFd }, () => {
      server.off("error", failed);
      server.on("error", (error) => env.logger.error("listener", { error: error.message }));
      resolve({
        port: (server.address() as AddressInfo).port,
        serve(served) {
          connections.served = served;
        },
        setTls(tls) {
          acceptor = acceptorFor(tls);
        },
        active() {
          const active = connections.active();
          return at.tls ? { ...active, connections: tlsSockets.size } : active;
        },
        drain(lingerMs = 0) {
          server.close();
          return connections.drain(lingerMs);
        },
        destroy() {
          server.close();
          connections.destroy();
          for (const socket of tlsSockets) socket.destroy();
        },
      });
    });
  });
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
