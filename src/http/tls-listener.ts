/**
 * TLS of a listener as it is configured: certificates, floors, and whether clients show certificates of their own. All
 * texts are PEM; they were checked when the configuration was loaded.
 */

export interface NamedEntries<Value> {
  /** Undefined if no name fits. */
  find(servername: string): Value | undefined;
}

/** The first entry of a name wins. Names are lower case. */
export function createServerNames<Value>(
  entries: readonly (readonly [name: string, value: Value])[],
): NamedEntries<Value> {
  const exact = new Map<string, Value>();
  /** By the part after the star, with its dot. */
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
  /** Names in lower case, also `*.example.com`, for which clients are shown this one. */
  readonly hosts: readonly string[];
}

export interface ListenerTls {
  /** The first one is shown where no name fits. */
  readonly certificates: readonly [ListenerCertificate, ...ListenerCertificate[]];
  readonly minVersion: "TLSv1.2" | "TLSv1.3";
  /** OpenSSL's list; Node's if undefined. */
  readonly ciphers: string | undefined;
  readonly clientAuth: ClientAuth | undefined;
  /** Which part of the port a name belongs to, if it has several: a request must belong to that of its connection. */
  readonly parts?: NamedEntries<string> | undefined;
}

export interface ClientAuth {
  readonly ca: string;
  /** `optional`: clients without a certificate pass; one that does not verify is refused either way. */
  readonly mode: "require" | "optional";
}
