/**
 * Describes the origin of a request: the connection's peer, and the client behind it if trusted proxies report one.
 */
import { canonicalAddress, isLoopbackHost } from "../http/host.ts";

export interface Source {
  readonly address: string;
  readonly port: number;
  /** Trusted proxies report this address. It is absent if the peer is the client. */
  readonly client?: string | undefined;
  /** A load balancer reports this address with the PROXY protocol. */
  readonly proxied?: string | undefined;
  /**
   * True if a proxy forwarded the request: the connection has a PROXY protocol header, or the request has a forwarding
   * header, whoever sent it.
   */
  readonly isForwarded?: boolean | undefined;
  /** The identity is the subject of the client certificate. */
  readonly identity?: string | undefined;
  readonly serverName?: string | undefined;
}

/** Returns the addresses that the gateway adds to `x-forwarded-for`. */
export function addedForwardedFor({ address, proxied }: Pick<Source, "address" | "proxied">): string {
  return proxied === undefined ? address : `${proxied}, ${address}`;
}

export function clientAddress({ address, client }: Pick<Source, "address" | "client">): string {
  return client ?? address;
}

/** Returns undefined behind a proxy that is not in `trustedProxies`, where all clients have the proxy's address. */
export function knownAddress({ address, client, isForwarded }: Source): string | undefined {
  return client ?? (isForwarded === true ? undefined : address);
}

/**
 * Tells whether the client itself connected over a loopback address. A proxy on this machine also connects over
 * loopback, so a forwarded request is never one of a loopback client.
 */
export function isLoopbackClient(source: Source): boolean {
  return source.isForwarded !== true && isLoopbackPeer(source) && isLoopbackAddress(clientAddress(source));
}

/** Tells whether the connection comes from this machine: from a client or from a proxy. */
export function isLoopbackPeer({ address }: Pick<Source, "address">): boolean {
  return isLoopbackAddress(address);
}

function isLoopbackAddress(address: string): boolean {
  return isLoopbackHost(canonicalAddress(address));
}
