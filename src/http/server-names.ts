/**
 * Which of several certificates a client is shown, by the server name that it asks for (SNI, RFC 6066 section 3): the
 * exact name, then the longest wildcard, then none. A wildcard stands for one label or more, as in route host names.
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
