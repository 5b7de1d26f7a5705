/**
 * Opens a listening socket, limits its connections, sweeps those past their deadline, and drains them gracefully.
 * client-connection.ts parses requests, and request-entry.ts passes them to the pipeline.
 */
import { type AddressInfo, createServer, type ListenOptions, type Server, type Socket } from "node:net";
import { LinkedList } from "../../base/linked-list.ts";
import { clientKey } from "../../core/principal.ts";
import { fairReads } from "../../http/h1/fair-reads.ts";
import type { ListenerTls } from "../../http/tls-listener.ts";
import type { Served } from "../phases/pipeline-env.ts";
import { ClientConnection } from "./client-connection.ts";
import type { ConnectionOwner, JoinedConnections, OpenConnection } from "./connection-owner.ts";
import { Http2Connection } from "./http2/http2-connection.ts";
import { watchIdle } from "./idle.ts";
import type { ListenerAddress, ListenerEnv } from "./listener-env.ts";
import { createRequestEntry, nameOf } from "./request-entry.ts";
import { createTlsAcceptor, type TlsAcceptor } from "./tls-acceptor.ts";
import { Tunnel } from "./tunnel.ts";

/** Limits the log lines about rejected connections. */
const LOG_REJECTED_EVERY_MS = 10_000;

export interface OpenListener {
  readonly port: number;
  /** Later requests use this configuration. */
  serve(served: Served): void;
  /** Later handshakes use these settings, and open connections stay. */
  setTls(tls: ListenerTls): void;
  active(): { connections: number; requests: number };
  /**
   * Stops accepting, and resolves when every request has ended. Kept-alive connections are closed immediately, or
   * after `lingerMs`, so that requests in flight are still served.
   */
  drain(lingerMs?: number): Promise<void>;
  destroy(): void;
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
  let served = first;
  let draining = false;
  let isLingering = false;
  let requests = 0;
  let sweeps = 0;
  let rejected = 0;
  let nextLogMs = 0;
  let resolveDrained: () => void = ignore;
  const drained = new Promise<void>((resolve) => {
    resolveDrained = resolve;
  });
  const idle = watchIdle(env.clock);
  /** Maps sockets to the subjects of their client certificates. */
  const identities = new WeakMap<Socket, string>();
  const entry = at.tls
    ? createRequestEntry(env, "https", (socket) => identities.get(socket))
    : createRequestEntry(env, "http");
  const connections = new LinkedList<OpenConnection>();
  const tunnels = new Set<Tunnel>();
  const perAddress = new Map<string, number>();
  /** Includes connections during their TLS handshake. */
  const tlsSockets = new Set<Socket>();

  const owner: ConnectionOwner = {
    clock: env.clock,
    idle,
    waitingBytes: env.memory.streams,
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
      if (draining && requests === 0 && !isLingering) resolveDrained();
    },
    closed: (connection) => connections.remove(connection),
    get speaksHttp2() {
      return served.listener.http2 !== false;
    },
    becomeHttp2(connection, socket) {
      connections.remove(connection);
      connections.add(new Http2Connection(socket, owner));
    },
    join,
    unexpected: (error, socket) => env.unexpected(error, nameOf(socket)),
  };

  function join({ client, backend, firstBytes, chargedTo, closed }: JoinedConnections): void {
    const tunnel = new Tunnel(client, backend, {
      clock: env.clock,
      waitingBytes: env.memory.streams,
      chargedTo,
      idle,
      idleLimitMs: env.limits.tunnelIdleMs,
      closed() {
        tunnels.delete(tunnel);
        closed();
      },
      unexpected: (error) => env.unexpected(error, nameOf(client as Socket)),
    });
    tunnels.add(tunnel);
    tunnel.sendFirst(firstBytes);
    if (draining) tunnel.goAway();
  }

  function logRejected(message: string, limit: number): void {
    rejected += 1;
    const nowMs = env.clock.monotonicMs();
    if (nowMs < nextLogMs) return;
    nextLogMs = nowMs + LOG_REJECTED_EVERY_MS;
    env.logger.warn(message, { limit, refused: rejected });
    rejected = 0;
  }

  /**
   * Counts the connection for its address. A trusted proxy connects for many clients, and a Unix socket has no
   * address.
   */
  function admit(socket: Socket): boolean {
    const { remoteAddress } = socket;
    if (remoteAddress === undefined || env.isTrustedPeer(remoteAddress)) return true;
    const address = clientKey(undefined, remoteAddress.replace(/^::ffff:/, ""));
    const open = perAddress.get(address) ?? 0;
    if (open >= env.limits.maxConnectionsPerAddress) return false;
    perAddress.set(address, open + 1);
    socket.once("close", () => {
      const left = (perAddress.get(address) ?? 0) - 1;
      if (left > 0) perAddress.set(address, left);
      else perAddress.delete(address);
    });
    return true;
  }

  function opened(socket: Socket): void {
    connections.add(new ClientConnection(socket, owner));
  }

  function doorFor(tls: ListenerTls): TlsAcceptor {
    return createTlsAcceptor(tls, {
      handshakeTimeoutMs: env.limits.headersTimeoutMs,
      protocols: owner.speaksHttp2 ? ["h2", "http/1.1"] : ["http/1.1"],
      opened(socket, identity) {
        if (identity !== undefined) identities.set(socket, identity);
        if (socket.alpnProtocol === "h2") connections.add(new Http2Connection(socket, owner));
        else opened(socket);
      },
    });
  }

  let door = at.tls && doorFor(at.tls);
  // Connections are half-open, because a client that has sent everything may still read. The connection detects
  // clients that disconnected.
  const server: Server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    fairReads.accepted();
    if (!admit(socket)) {
      socket.destroy();
      logRejected("connections rejected: one address has too many open", env.limits.maxConnectionsPerAddress);
      return;
    }
    if (door === undefined) {
      opened(socket);
      return;
    }
    tlsSockets.add(socket);
    socket.once("close", () => tlsSockets.delete(socket));
    door.enter(socket);
  });
  server.maxConnections = env.limits.maxConnections;
  server.on("drop", () => {
    fairReads.accepted();
    logRejected("connections rejected: too many are open", env.limits.maxConnections);
  });
  const sweep = env.clock.every(env.limits.checkIntervalMs, () => {
    sweeps += 1;
    connections.each((connection) => connection.sweep());
  });

  return new Promise((resolve, reject) => {
    const failed = (error: Error): void => {
      idle.stop();
      sweep.cancel();
      reject(error);
    };
    server.once("error", failed);
    server.listen(inheritedFd === undefined ? listenOptions(at) : { fd: inheritedFd }, () => {
      server.off("error", failed);
      server.on("error", (error) => env.logger.error("listener", { error: error.message }));
      resolve({
        port: (server.address() as AddressInfo).port,
        serve(next) {
          served = next;
        },
        setTls(tls) {
          door = doorFor(tls);
        },
        active: () => ({ connections: at.tls ? tlsSockets.size : connections.size, requests }),
        drain(lingerMs = 0) {
          draining = true;
          server.close();
          isLingering = lingerMs > 0;
          const closeIdle = (): void => {
            isLingering = false;
            connections.each((connection) => connection.closeIfIdle());
            if (requests === 0) resolveDrained();
          };
          if (isLingering) env.clock.after(lingerMs, closeIdle);
          else closeIdle();
          // Tunnels have no defined end. Their clients reconnect to another process.
          for (const tunnel of tunnels) tunnel.goAway();
          return drained;
        },
        destroy() {
          idle.stop();
          sweep.cancel();
          server.close();
          owner.streams.each((stream) => stream.finishStream());
          for (const tunnel of tunnels) tunnel.destroy();
          connections.each((connection) => connection.destroy());
          for (const socket of tlsSockets) socket.destroy();
        },
      });
    });
  });
}

function listenOptions({ address, port, isShared = false }: ListenerAddress): ListenOptions & { reusePort?: boolean } {
  return { port, reusePort: isShared, ...(address === undefined ? {} : { host: address }) };
}

function ignore(): void {
  // Nothing waits for the drain yet.
}
