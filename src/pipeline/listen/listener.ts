/**
 * Opens a listening socket, limits its connections, and stops accepting to drain.
 */
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { fairReads } from "../../http/h1/socket-reads.ts";
import type { ListenerTls } from "../../http/tls-listener.ts";
import type { Served } from "../phases/pipeline-env.ts";
import { ClientConnection } from "./client-connection.ts";
import { Http2Connection } from "./http2/http2-connection.ts";
import { type ListenerAddress, type ListenerEnv, listenOptions } from "./listener-env.ts";
import { type ConnectionKinds, createConnectionLimits, createOpenConnections } from "./open-connections.ts";
import { createProxiedConnections } from "./proxied-connections.ts";
import { createRequestEntry } from "./request-entry.ts";
import { createTlsAcceptor, type TlsAcceptor } from "./tls-acceptor.ts";

export const CONNECTIONS: ConnectionKinds = {
  http1: (socket, owner) => new ClientConnection(socket, owner),
  http2: (socket, owner) => new Http2Connection(socket, owner),
};

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
  /** Maps sockets to the subjects of their client certificates. */
  const identities = new WeakMap<Socket, string>();
  const proxied = createProxiedConnections(env);
  const entry = createRequestEntry(env, at.tls ? "https" : "http", {
    identityOf: at.tls ? (socket) => identities.get(socket) : undefined,
    proxiedBy: proxied.find,
  });
  let { proxyProtocol } = first.listener;
  const connections = createOpenConnections(first, env, entry, CONNECTIONS);
  /** Includes connections during their TLS handshake. */
  const tlsSockets = new Set<Socket>();

  function acceptorFor(tls: ListenerTls): TlsAcceptor {
    return createTlsAcceptor(tls, {
      handshakeTimeoutMs: env.limits.headersTimeoutMs,
      protocols: connections.speaksHttp2 ? ["h2", "http/1.1"] : ["http/1.1"],
      opened(socket, identity) {
        if (identity !== undefined) identities.set(socket, identity);
        connections.add(socket, socket.alpnProtocol === "h2" ? "http2" : "http1");
      },
    });
  }

  let acceptor = at.tls && acceptorFor(at.tls);
  // With `allowHalfOpen`, the connection decides what to do when the client closes its side.
  const server: Server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    fairReads.accepted();
    if (!limits.admit(socket)) return;
    if (proxyProtocol === undefined) enter(socket);
    else proxied.enter(socket, proxyProtocol, () => enter(socket));
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
          proxyProtocol = served.listener.proxyProtocol;
          connections.serve(served);
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
          proxied.destroy();
          connections.destroy();
          for (const socket of tlsSockets) socket.destroy();
        },
      });
    });
  });
}
