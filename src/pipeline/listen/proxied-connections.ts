/**
 * Reads the PROXY protocol headers of a listener's connections, and remembers the addresses that they carry. Only
 * trusted peers may send a header, because it replaces the client's address.
 */
import type { Socket } from "node:net";
import { peerInput } from "../../base/peer-inputs.ts";
import type { ProxyProtocol } from "../../core/topology.ts";
import { type ProxiedAddresses, type ProxyHeader, readProxyHeader } from "../../http/proxy-protocol.ts";
import type { ListenerEnv } from "./listener-env.ts";

const HEADER = peerInput("client/proxy-header");

/** Limits the work for a peer that sends its header byte by byte. */
const MAX_HEADER_CHUNKS = peerInput("client/proxy-header").maxItems;
const LOG_REJECTED_EVERY_MS = 10_000;

export interface Proxied {
  /** Undefined if the proxy does not know the client, or connects on its own behalf. */
  readonly addresses: ProxiedAddresses | undefined;
}

export interface ProxiedConnections {
  /** Calls `next` once the header has been read. The bytes after it can be read again. Closes invalid connections. */
  enter(socket: Socket, protocol: ProxyProtocol | undefined, next: () => void): void;
  /** Also finds the header of a TLS socket, which has the addresses of its connection. */
  find(socket: Socket): Proxied | undefined;
  /** Closes the connections whose headers have not been received. */
  destroy(): void;
}

export function createProxiedConnections(env: ListenerEnv): ProxiedConnections {
  const known = new Map<string, Proxied>();
  const waiting = new Set<Socket>();
  let nextLogMs = Number.NEGATIVE_INFINITY;

  function reject(socket: Socket, reason: string): void {
    const nowMs = env.clock.monotonicMs();
    if (nowMs >= nextLogMs) {
      nextLogMs = nowMs + LOG_REJECTED_EVERY_MS;
      env.logger.warn("connection rejected: PROXY protocol", { peer: socket.remoteAddress, reason });
    }
    socket.destroy();
  }

  function remember(socket: Socket, proxied: Proxied): void {
    const key = connectionKey(socket);
    known.set(key, proxied);
    // The proxy may have used the same port for a new connection before this event.
    socket.once("close", () => {
      if (known.get(key) === proxied) known.delete(key);
    });
  }

  function read(socket: Socket, protocol: ProxyProtocol, next: () => void): void {
    const chunks: Buffer[] = [];
    waiting.add(socket);
    const timer = env.clock.after(env.limits.headersTimeoutMs, () => fail("no header within the time limit"));
    const stop = (): void => {
      timer.cancel();
      waiting.delete(socket);
      socket.off("data", received);
      socket.off("end", ended);
      socket.off("close", stop);
    };
    const fail = (reason: string): void => {
      stop();
      reject(socket, reason);
    };
    const ended = (): void => fail("the connection ended before the header");
    function received(chunk: Buffer): void {
      chunks.push(chunk);
      const bytes = Buffer.concat(chunks);
      const header = readProxyHeader(HEADER, bytes);
      if (header.state === "incomplete" && chunks.length < MAX_HEADER_CHUNKS) return;
      const fault = headerFault(header, protocol);
      if (fault !== undefined) {
        fail(fault);
        return;
      }
      stop();
      const length = header.state === "complete" ? header.length : 0;
      if (header.state === "complete") remember(socket, { addresses: header.addresses });
      socket.pause();
      if (bytes.length > length) socket.unshift(bytes.subarray(length));
      next();
    }
    socket.on("error", () => undefined);
    socket.on("data", received);
    socket.once("end", ended);
    socket.once("close", stop);
  }

  return {
    enter(socket, protocol, next) {
      if (protocol === undefined) next();
      else if (env.isTrustedPeer(socket.remoteAddress ?? "")) read(socket, protocol, next);
      else if (protocol.isRequired) reject(socket, "the peer is not in config.trustedProxies");
      else next();
    },
    find: (socket) => (known.size === 0 ? undefined : known.get(connectionKey(socket))),
    destroy() {
      for (const socket of [...waiting]) socket.destroy();
    },
  };
}

function headerFault(header: ProxyHeader, { versions, isRequired }: ProxyProtocol): string | undefined {
  if (header.state === "complete")
    return versions.includes(header.version) ? undefined : `version ${header.version} is not accepted`;
  return header.state === "absent" && !isRequired ? undefined : `${header.state} header`;
}

function connectionKey({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}
