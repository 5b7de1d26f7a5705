/**
 * Opens a listener that forwards TCP connections without reading HTTP. On a TLS listener, the server name (SNI) selects
 * the part and the route; TLS is passed through or terminated.
 */
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { Timer } from "../../../base/clock.ts";
import type { TcpBackend, TcpPart, TcpRoute, TcpService } from "../../../core/topology.ts";
import { parseAddress } from "../../../http/backend-address.ts";
import { readClientHello } from "../../../http/client-hello.ts";
import { createServerNames, type NamedEntries } from "../../../http/tls-listener.ts";
import type { Served } from "../../phases/pipeline-env.ts";
import { createConnectionLimits } from "../connection-limits.ts";
import { watchIdle } from "../idle.ts";
import type { OpenListener } from "../listener.ts";
import { type ListenerAddress, type ListenerEnv, listenOptions } from "../listener-env.ts";
import { nameOf } from "../request-entry.ts";
import { createTlsAcceptor, type TlsAcceptor } from "../tls-acceptor.ts";
import { TcpRelay } from "./tcp-relay.ts";

/** Limits the work for a client that sends its first message byte by byte. */
const MAX_HELLO_CHUNKS = 64;
const CONNECT_TIMEOUT_MS = 5_000;
/** Further endpoints are tried if a connection fails. */
const MAX_ATTEMPTS = 3;
/** Connections of a listener that was removed, or of a gateway that shuts down, are closed after this time. */
const DRAIN_MS = 30_000;

interface TcpConnection {
  readonly socket: Socket;
  /** Undefined until the server name is known. */
  part: TcpPart | undefined;
}

/** Rejects with the system's error if the address cannot be bound. */
export function openTcpListener(
  at: ListenerAddress,
  first: Served,
  env: ListenerEnv,
  inheritedFd?: number,
): Promise<OpenListener> {
  let table = createTcpTable(first.listener.tcp);
  const limits = createConnectionLimits(env);
  const idle = watchIdle(env.clock);
  const connections = new Set<TcpConnection>();
  const acceptors = new WeakMap<TcpPart, TlsAcceptor>();
  const positions = new WeakMap<TcpBackend, number>();
  let resolveDrained: (() => void) | undefined;
  let drainTimer: Timer | undefined;

  function accept(socket: Socket): void {
    if (!limits.admit(socket)) return;
    const connection: TcpConnection = { socket, part: undefined };
    connections.add(connection);
    socket.on("error", () => undefined);
    socket.once("close", () => remove(connection));
    const enterPart = (serverName: string | undefined): void => {
      connection.part = table.find(serverName);
      enter(connection.part, serverName, socket);
    };
    if (table.readsServerName) readServerName(socket, env, enterPart);
    else enterPart(undefined);
  }

  function remove(connection: TcpConnection): void {
    connections.delete(connection);
    if (connections.size === 0) drained();
  }

  function drained(): void {
    drainTimer?.cancel();
    resolveDrained?.();
  }

  function enter(part: TcpPart | undefined, serverName: string | undefined, socket: Socket): void {
    if (part === undefined || part.closed !== undefined) socket.destroy();
    else if (part.tls === undefined) forward(part, serverName, socket);
    else acceptorOf(part).enter(socket);
  }

  function acceptorOf(part: TcpPart): TlsAcceptor {
    const known = acceptors.get(part);
    if (known || part.tls === undefined) return known as TlsAcceptor;
    const acceptor = createTlsAcceptor(part.tls, {
      handshakeTimeoutMs: env.limits.headersTimeoutMs,
      protocols: [],
      opened: (socket) => forward(part, socket.servername || undefined, socket),
    });
    acceptors.set(part, acceptor);
    return acceptor;
  }

  function forward(part: TcpPart, serverName: string | undefined, client: Socket): void {
    client.on("error", () => undefined);
    const route = table.routeOf(part, serverName);
    const backend = route && chooseBackend(route, env.random());
    if (backend === undefined || backend.isClosed) {
      client.destroy();
      return;
    }
    const addresses = backend.addresses();
    const next = (positions.get(backend) ?? -1) + 1;
    positions.set(backend, next);
    attempt(client, addresses, next, 0);
  }

  function attempt(client: Socket, addresses: readonly string[], position: number, tried: number): void {
    const address = addresses[(position + tried) % addresses.length];
    const parsed = address === undefined ? undefined : parseAddress(address);
    if (client.destroyed || tried >= Math.min(MAX_ATTEMPTS, addresses.length) || !parsed?.ok) {
      client.destroy();
      return;
    }
    const { host, port } = parsed.target;
    const backend = connect({ host, port, noDelay: true, allowHalfOpen: true });
    const abort = (): void => void backend.destroy();
    const timer = env.clock.after(CONNECT_TIMEOUT_MS, () => backend.destroy(new Error("connect timeout")));
    client.once("close", abort);
    const settle = (): void => {
      timer.cancel();
      client.off("close", abort);
    };
    backend.on("error", () => undefined);
    backend.once("close", failed);
    function failed(): void {
      settle();
      attempt(client, addresses, position, tried + 1);
    }
    backend.once("connect", () => {
      settle();
      backend.off("close", failed);
      new TcpRelay(client, backend, {
        idle,
        waitingBytes: env.memory.streams,
        chargedTo: nameOf(client),
        idleLimitMs: env.limits.tunnelIdleMs,
      });
    });
  }

  const server: Server = createServer({ noDelay: true, allowHalfOpen: true }, accept);
  server.maxConnections = env.limits.maxConnections;
  server.on("drop", () => limits.logRejected("connections rejected: too many are open", env.limits.maxConnections));

  function destroyAll(): void {
    for (const { socket } of [...connections]) socket.destroy();
  }

  return new Promise((resolve, reject) => {
    const failed = (error: Error): void => {
      idle.stop();
      reject(error);
    };
    server.once("error", failed);
    server.listen(inheritedFd === undefined ? listenOptions(at) : { fd: inheritedFd }, () => {
      server.off("error", failed);
      server.on("error", (error) => env.logger.error("listener", { error: error.message }));
      resolve({
        port: (server.address() as AddressInfo).port,
        serve({ listener }) {
          table = createTcpTable(listener.tcp);
          // A connection stays with its backend, unless its part may no longer be used.
          for (const { socket, part } of [...connections])
            if (part !== undefined && !table.isOpen(part.name)) socket.destroy();
        },
        setTls: () => undefined,
        active: () => ({ connections: connections.size, requests: 0 }),
        drain() {
          server.close();
          const whenDrained = new Promise<void>((done) => {
            resolveDrained = done;
          });
          if (connections.size === 0) drained();
          else drainTimer = env.clock.after(DRAIN_MS, destroyAll);
          return whenDrained;
        },
        destroy() {
          server.close();
          idle.stop();
          destroyAll();
          drained();
        },
      });
    });
  });
}

interface TcpTable {
  readonly readsServerName: boolean;
  find(serverName: string | undefined): TcpPart | undefined;
  routeOf(part: TcpPart, serverName: string | undefined): TcpRoute | undefined;
  isOpen(part: string): boolean;
}

function createTcpTable(service: TcpService | undefined): TcpTable {
  const parts = service?.parts ?? [];
  const byName = createServerNames(
    parts.flatMap((part) => (part.hostname === undefined ? [] : [[part.hostname, part] as const])),
  );
  const standard = parts.find(({ hostname }) => hostname === undefined);
  return {
    readsServerName: service?.readsServerName ?? false,
    // A name that belongs to a listener is never served by another one, even if it has no route.
    find: (serverName) => (serverName === undefined ? undefined : byName.find(serverName)) ?? standard,
    routeOf(part, serverName) {
      const { named, standard: route } = routesOf(part);
      return (serverName === undefined ? undefined : named.find(serverName)) ?? route;
    },
    isOpen: (name) => parts.some((part) => part.name === name && part.closed === undefined),
  };
}

interface PartRoutes {
  readonly named: NamedEntries<TcpRoute>;
  readonly standard: TcpRoute | undefined;
}

/** The routes of a part are indexed once, even if a handshake ends after a reload. */
const indexedRoutes = new WeakMap<TcpPart, PartRoutes>();

function routesOf(part: TcpPart): PartRoutes {
  const known = indexedRoutes.get(part);
  if (known) return known;
  const named = createServerNames(
    part.routes.flatMap((route) => route.hostnames.map((hostname) => [hostname.toLowerCase(), route] as const)),
  );
  const indexed = { named, standard: part.routes.find(({ hostnames }) => hostnames.length === 0) };
  indexedRoutes.set(part, indexed);
  return indexed;
}

/** Returns undefined if no backend has a weight. */
function chooseBackend({ backends }: TcpRoute, random: number): TcpBackend | undefined {
  let left = random * backends.reduce((sum, { weight }) => sum + weight, 0);
  return backends.find(({ weight }) => {
    left -= weight;
    return weight > 0 && left < 0;
  });
}

/** Destroys the connection if it does not begin with a ClientHello. The bytes can be read again afterwards. */
function readServerName(socket: Socket, env: ListenerEnv, found: (serverName: string | undefined) => void): void {
  const chunks: Buffer[] = [];
  const timer = env.clock.after(env.limits.headersTimeoutMs, () => socket.destroy());
  const isDone = (): void => timer.cancel();
  socket.once("close", isDone);
  socket.once("end", ended);
  function ended(): void {
    socket.destroy();
  }
  function received(chunk: Buffer): void {
    chunks.push(chunk);
    const bytes = Buffer.concat(chunks);
    const hello = readClientHello(bytes);
    if (hello.state === "incomplete" && chunks.length < MAX_HELLO_CHUNKS) return;
    socket.off("data", received);
    socket.off("end", ended);
    socket.off("close", isDone);
    timer.cancel();
    if (hello.state !== "complete") {
      socket.destroy();
      return;
    }
    socket.pause();
    socket.unshift(bytes);
    found(hello.serverName);
  }
  socket.on("data", received);
}
