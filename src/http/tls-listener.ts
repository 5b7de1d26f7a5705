/**
 * The TLS settings of a listener: certificates, minimum versions, and client certificates. All strings are PEM and were
 * checked when the configuration was loaded.
 */

export interface NamedEntries<Value> {
  /** Returns undefined if no name matches. */
  find(servername: string): Value | undefined;
}

/**
 * Selects an entry by the client's server name (SNI, RFC 6066 section 3): the exact name, then the longest wildcard,
 * then none. A wildcard matches one or more labels. The first entry of a name wins, and names are lowercase.
 */
export function createServerNames<Value>(
  entries: readonly (readonly [name: string, value: Value])[],
): NamedEntries<Value> {
  const exact = new Map<string, Value>();
  /** Keyed by the part after the star, including its dot. */
  const wildcards = new Map<string, Value>();
  for (const [name, value] of entries) {
    const isWildcard = name.startsWith("*.");
    const table = isWildcard ? wildcards : exact;
    const key = isWildcard ? name.slice(1) : name;
    if (!table.has(key)) table.set(key, value);
  }
  return {
    find(servername) {
      const name = servername.toLowerCase();
      const found = exact.get(name);
      if (found !== undefined || wildcards.size === 0) return found;
      for (let dot = name.indexOf("."); dot >= 0; dot = name.indexOf(".", dot + 1)) {
        const fitting = wildcards.get(name.slice(dot));
        if (fitting !== undefined && dot > 0) return fitting;
      }
      return undefined;
    },
  };
}

export interface ListenerCertificate {
  readonly cert: string;
  readonly key: string;
  /** The lowercase names, including `*.example.com`, for which this certificate is used. */
  readonly hosts: readonly string[];
}

export interface ListenerTls {
  /** The first one is used if no name matches. */
  readonly certificates: readonly [ListenerCertificate, ...ListenerCertificate[]];
  readonly minVersion: "TLSv1.2" | "TLSv1.3";
  /** OpenSSL's list; Node's default if undefined. */
  readonly ciphers: string | undefined;
  readonly clientAuth: ClientAuth | undefined;
  /** Maps a name to its part of the port if there are several. A request must belong to the part of its connection. */
  readonly parts?: NamedEntries<string> | undefined;
}

export interface ClientAuth {
  readonly ca: string;
  /**
   * `optional`: clients without a certificate are accepted. A certificate that does not verify is rejected in both
   * modes.
   */
  readonly mode: "require" | "optional";
}
