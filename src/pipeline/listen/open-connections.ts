/**
 * Manages the connections and tunnels of one listener.
 */
import type { Socket } from "node:net";
import { LinkedList } from "../../base/linked-list.ts";
import type { Served } from "../phases/pipeline-env.ts";
import { ClientConnection } from "./client-connection.ts";
import type { ConnectionOwner, JoinedConnections, OpenConnection } from "./connection-owner.ts";
import { Http2Connection } from "./http2/http2-connection.ts";
import { watchIdle } from "./idle.ts";
import type { ListenerEnv } from "./listener-env.ts";
import { nameOf, type RequestEntry } from "./request-entry.ts";
import { Tunnel } from "./tunnel.ts";

export interface OpenConnections {
  /** Later requests use this configuration. */
  serve(served: Served): void;
  readonly speaksHttp2: boolean;
  add(socket: Socket, protocol: "http1" | "http2"): void;
  active(): { connections: number; requests: number };
  /** Closes idle connections after `lingerMs`. */
  drain(lingerMs: number): Promise<void>;
  destroy(): void;
}

export function createOpenConnections(first: Served, env: ListenerEnv, entry: RequestEntry): OpenConnections {
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
      connections.add(new Http2Connection(socket, owner));
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
      connections.add(protocol === "http2" ? new Http2Connection(socket, owner) : new ClientConnection(socket, owner));
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
