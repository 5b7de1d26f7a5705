/**
 * Opens a listener that forwards TCP connections without reading HTTP. On a TLS listener, the server name (SNI) selects
 * the part and the route; TLS is passed through or terminated.
 */
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { Timer } from "../../../base/clock.ts";
import { fileDescriptors } from "../../../base/file-descriptors.ts";
import { peerInput } from "../../../base/peer-inputs.ts";
import type { TcpBackend, TcpPart, TcpRoute, TcpService } from "../../../core/topology.ts";
import { parseAddress } from "../../../http/backend-address.ts";
import { readClientHello } from "../../../http/client-hello.ts";
import { canonicalAddress, canonicalServerName, createHostTable, type HostTable } from "../../../http/host.ts";
import { createLookup } from "../../../http/lookup.ts";
import { formatProxyHeader, type ProxiedAddresses } from "../../../http/proxy-protocol.ts";
import type { Metrics } from "../../../record/log/metrics.ts";
import type { Served } from "../../phases/pipeline-env.ts";
import { watchIdle } from "../idle.ts";
import type { OpenListener } from "../listener.ts";
import { createConnectionLimits } from "../listener.ts";
import { type ListenerAddress, type ListenerEnv, listenOptions } from "../listener-env.ts";
import { createProxiedConnections } from "../proxied-connections.ts";
import { nameOf } from "../request-entry.ts";
import { createTlsAcceptor, type TlsAcceptor } from "../tls-acceptor.ts";
import { TcpRelay } from "./tcp-relay.ts";

const HELLO = peerInput("client/tls-hello");

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

interface Forwarded {
  readonly client: Socket;
  readonly src: string;
  /** The address that a trusted load balancer reports. */
  readonly proxiedClient: string | undefined;
  readonly serverName: string | undefined;
  readonly route: string | undefined;
  readonly backend: TcpBackend | undefined;
}

interface RecordedConnection extends Partial<Omit<Forwarded, "client">> {
  readonly durationMs?: number;
  readonly bytesReceived?: number;
  readonly bytesSent?: number;
  /** The reason if the connection was not forwarded. */
  readonly rejected?: string;
}

type CountConnection = (gateway: string, connection: RecordedConnection) => void;

/** Counts the connections of all listeners when they end. */
export function countTcpConnections(metrics: Metrics): CountConnection {
  const connections = metrics.counter(
    "gateway_tcp_connections_total",
    "TCP connections that ended, by what happened to them.",
    ["gateway", "route", "backend", "result"],
  );
  const bytes = metrics.counter(
    "gateway_tcp_bytes_total",
    "Bytes of TCP connections that ended: `received` from clients, or `sent` to them.",
    ["gateway", "route", "direction"],
  );
  return (gateway, { route = "", backend, rejected, bytesReceived = 0, bytesSent = 0 }) => {
    connections.labels(gateway, route, backend?.name ?? "", rejected === undefined ? "forwarded" : "rejected").add(1);
    if (rejected !== undefined) return;
    bytes.labels(gateway, route, "received").add(bytesReceived);
    bytes.labels(gateway, route, "sent").add(bytesSent);
  };
}

/** Rejects with the system's error if the address cannot be bound. */
export function openTcpListener(
  at: ListenerAddress,
  first: Served,
  env: ListenerEnv & { readonly countConnection: CountConnection },
  inheritedFd?: number,
): Promise<OpenListener> {
  let table = createTcpTable(first.listener.tcp);
  let { proxyProtocol, name: gateway } = first.listener;
  const proxied = createProxiedConnections(env);
  const access = env.logger.for("access");
  const limits = createConnectionLimits(env);
  const idle = watchIdle(env.clock);
  const connections = new Set<TcpConnection>();
  const acceptors = new WeakMap<TcpPart, TlsAcceptor>();
  const positions = new WeakMap<TcpBackend, number>();
  let isDraining = false;
  let resolveDrained: () => void = () => undefined;
  const whenDrained = new Promise<void>((resolve) => {
    resolveDrained = resolve;
  });
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
    proxied.enter(socket, proxyProtocol, () => {
      if (table.readsServerName) readServerName(socket, env, enterPart);
      else enterPart(undefined);
    });
  }

  function remove(connection: TcpConnection): void {
    connections.delete(connection);
    if (isDraining && connections.size === 0) drained();
  }

  function drained(): void {
    drainTimer?.cancel();
    resolveDrained();
  }

  function enter(part: TcpPart | undefined, serverName: string | undefined, socket: Socket): void {
    if (part === undefined || part.closed !== undefined) {
      const proxiedClient = proxied.find(socket)?.addresses?.source.address;
      const rejected = part?.closed ?? "no listener has this server name";
      record({ src: nameOf(socket), proxiedClient, serverName, rejected });
      socket.destroy();
    } else if (part.tls === undefined) forward(part, serverName, socket);
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
    const found: Forwarded = {
      client,
      src: nameOf(client),
      proxiedClient: proxied.find(client)?.addresses?.source.address,
      serverName,
      route: route?.name,
      backend,
    };
    if (backend === undefined || backend.isClosed) {
      const reason = route === undefined ? "no route has this server name" : "the backend cannot be used";
      reject(found, reason);
      return;
    }
    const next = (positions.get(backend) ?? -1) + 1;
    positions.set(backend, next);
    attempt({ ...found, backend }, backend.addresses(serverName), next, 0);
  }

  function reject({ client, ...found }: Forwarded, rejected: string): void {
    record({ ...found, rejected });
    client.destroy();
  }

  function attempt(
    found: Forwarded & { readonly backend: TcpBackend },
    addresses: readonly string[],
    position: number,
    tried: number,
  ): void {
    const { client } = found;
    const address = addresses[(position + tried) % addresses.length];
    const parsed = address === undefined ? undefined : parseAddress(address);
    if (client.destroyed || tried >= Math.min(MAX_ATTEMPTS, addresses.length) || !parsed?.ok) {
      reject(found, client.destroyed ? "the client disconnected" : "no server of the backend accepted the connection");
      return;
    }
    const { host, port } = parsed.target;
    const { egress } = found.backend;
    if (egress.fault({ host }) !== undefined) {
      reject(found, `${host} is not a public address`);
      return;
    }
    const shortage = fileDescriptors.connectionFault(0);
    if (shortage !== undefined) {
      reject(found, shortage.message);
      return;
    }
    const lookup = egress.lookup(createLookup(env.clock));
    const backend = connect({ host, port, noDelay: true, allowHalfOpen: true, lookup });
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
      attempt(found, addresses, position, tried + 1);
    }
    backend.once("connect", () => {
      settle();
      backend.off("close", failed);
      if (found.backend.sendsProxyHeader) backend.write(formatProxyHeader(addressesOf(client)));
      recordAtClose(found, backend);
      new TcpRelay(client, backend, {
        idle,
        waitingBytes: env.memory.streams,
        chargedTo: nameOf(client),
        idleLimitMs: env.limits.tunnelIdleMs,
      });
    });
  }

  /** Returns the addresses of the client's connection, or those that a trusted load balancer reports. */
  function addressesOf(client: Socket): ProxiedAddresses | undefined {
    const header = proxied.find(client);
    if (header !== undefined) return header.addresses;
    const { remoteAddress = "", remotePort = 0, localAddress = "", localPort = 0 } = client;
    return {
      source: { address: canonicalAddress(remoteAddress), port: remotePort },
      destination: { address: canonicalAddress(localAddress), port: localPort },
    };
  }

  function recordAtClose({ client, ...found }: Forwarded, backend: Socket): void {
    const startedMs = env.clock.monotonicMs();
    client.once("close", () =>
      record({
        ...found,
        durationMs: Math.round(env.clock.monotonicMs() - startedMs),
        bytesReceived: client.bytesRead,
        bytesSent: backend.bytesRead,
      }),
    );
  }

  /** Counts the connection, and writes one line to the access log. */
  function record(connection: RecordedConnection): void {
    env.countConnection(gateway, connection);
    const { route, backend, src, proxiedClient, serverName, rejected, durationMs } = connection;
    const { bytesReceived, bytesSent } = connection;
    access.info("connection", {
      gateway,
      route,
      backend: backend?.name,
      src,
      client: proxiedClient,
      serverName,
      durationMs,
      bytesReceived,
      bytesSent,
      reason: rejected,
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
          ({ proxyProtocol, name: gateway } = listener);
          table = createTcpTable(listener.tcp);
          // A connection stays with its backend, unless its part may no longer be used.
          for (const { socket, part } of [...connections])
            if (part !== undefined && !table.isOpen(part.name)) socket.destroy();
        },
        setTls: () => undefined,
        active: () => ({ connections: connections.size, requests: 0 }),
        drain() {
          server.close();
          isDraining = true;
          if (connections.size === 0) drained();
          else drainTimer ??= env.clock.after(DRAIN_MS, destroyAll);
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
  const byName = createHostTable(
    parts.flatMap((part) => (part.hostname === undefined ? [] : [[part.hostname, part] as const])),
  );
  const standard = parts.find(({ hostname }) => hostname === undefined);
  return {
    readsServerName: service?.readsServerName ?? false,
    // A name that belongs to a listener is never served by another one, even if it has no route.
    find: (serverName) =>
      (serverName === undefined ? undefined : byName.find(canonicalServerName(serverName))) ?? standard,
    routeOf(part, serverName) {
      const { named, standard: route } = routesOf(part);
      return (serverName === undefined ? undefined : named.find(canonicalServerName(serverName))) ?? route;
    },
    isOpen: (name) => parts.some((part) => part.name === name && part.closed === undefined),
  };
}

interface PartRoutes {
  readonly named: HostTable<TcpRoute>;
  readonly standard: TcpRoute | undefined;
}

/** The routes of a part are indexed once, even if a handshake ends after a reload. */
const indexedRoutes = new WeakMap<TcpPart, PartRoutes>();

function routesOf(part: TcpPart): PartRoutes {
  const known = indexedRoutes.get(part);
  if (known) return known;
  const named = createHostTable(
    part.routes.flatMap((route) => route.hostnames.map((hostname) => [hostname, route] as const)),
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
    const hello = readClientHello(HELLO, bytes);
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
  // The socket is paused if a PROXY protocol header preceded.
  socket.resume();
}
