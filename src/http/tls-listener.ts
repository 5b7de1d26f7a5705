/**
 * Defines the TLS settings of a listener. Certificates and keys are PEM.
 */

export interface NamedEntries<Value> {
  find(servername: string): Value | undefined;
}

/**
 * Selects an entry by host name, for example by the server name of a TLS client (RFC 6066 section 3). An exact name has
 * precedence over the longest matching wildcard, which matches one or more labels. Names are lowercase, and the first
 * entry with a name takes precedence.
 */
export function createServerNames<Value>(
  entries: readonly (readonly [name: string, value: Value])[],
): NamedEntries<Value> {
  const exact = new Map<string, Value>();
  /** The keys are the names without the star, for example `.example.com`. */
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
  readonly hosts: readonly string[];
}

export interface ListenerTls {
  /** The first certificate is used if no name matches. */
  readonly certificates: readonly [ListenerCertificate, ...ListenerCertificate[]];
  readonly minVersion: "TLSv1.2" | "TLSv1.3";
  /** The list is in OpenSSL's format. If it is undefined, Node's default applies. */
  readonly ciphers: string | undefined;
  readonly clientAuth: ClientAuth | undefined;
  /** Maps a server name to the host name of its listener if several listeners share the port. */
  readonly parts?: NamedEntries<string> | undefined;
}

export interface ClientAuth {
  readonly ca: string;
  /** `optional` accepts clients without a certificate. Both modes reject an invalid certificate. */
  readonly mode: "require" | "optional";
}
