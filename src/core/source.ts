/**
 * The origin of a request: the connection's peer, and the client behind it if trusted proxies report one.
 */

export interface Source {
  /** The peer of the socket. */
  readonly address: string;
  readonly port: number;
  /** The client's address as reported by trusted proxies; absent if the peer is the client. */
  readonly client?: string | undefined;
  /** The subject of the client certificate. */
  readonly identity?: string | undefined;
  /** The server name (SNI) of the TLS connection. */
  readonly serverName?: string | undefined;
}

/** The client's address for limits, logs, and anything else that distinguishes clients by address. */
export function clientAddress({ address, client }: Pick<Source, "address" | "client">): string {
  return client ?? address;
}
