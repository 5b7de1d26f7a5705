/**
 * Where a request comes from: the connection's peer, and the client behind it if trusted proxies report one.
 */

export interface Source {
  /** The peer of the socket. */
  readonly address: string;
  readonly port: number;
  /** The client's address that trusted proxies report; absent where the peer counts as the client. */
  readonly client?: string | undefined;
  /** The subject of the certificate that the client showed. */
  readonly identity?: string | undefined;
  /** The name that the client asked for when it opened the TLS connection. */
  readonly serverName?: string | undefined;
}

/** The address that stands for the client: in limits, logs, and wherever clients are told apart by their address. */
export function clientAddress({ address, client }: Pick<Source, "address" | "client">): string {
  return client ?? address;
}
