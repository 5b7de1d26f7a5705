/**
 * Describes the origin of a request: the connection's peer, and the client behind it if trusted proxies report one.
 */

export interface Source {
  readonly address: string;
  readonly port: number;
  /** Trusted proxies report this address. It is absent if the peer is the client. */
  readonly client?: string | undefined;
  /** A load balancer reports this address with the PROXY protocol. */
  readonly proxied?: string | undefined;
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
