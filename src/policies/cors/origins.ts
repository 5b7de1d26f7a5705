/**
 * Which origins a `cors` policy allows. Compared as scheme, host and port, never as a substring: neither
 * `https://example.com.evil` nor `null` can pass for `https://example.com`.
 */

export interface Origins {
  /** `"*"` is listed. */
  readonly any: boolean;
  allows(origin: string): boolean;
}

interface Pattern {
  readonly scheme: string;
  readonly hostSuffix: string;
  readonly port: string;
}

export function compileOrigins(allowed: readonly string[]): Origins {
  const any = allowed.includes("*");
  const exact = new Set<string>();
  const patterns: Pattern[] = [];
  for (const entry of allowed) {
    if (entry === "*") continue;
    const wildcard = /^([a-z][a-z0-9+.-]*):\/\/\*\.([^:/]+)(?::(\d+|\*))?$/i.exec(entry);
    if (wildcard) {
      patterns.push({
        scheme: (wildcard[1] as string).toLowerCase(),
        hostSuffix: `.${(wildcard[2] as string).toLowerCase()}`,
        port: wildcard[3] ?? "",
      });
    } else exact.add(normalize(entry) ?? entry.toLowerCase());
  }
  return {
    any,
    allows(origin) {
      if (any) return true;
      const normal = normalize(origin);
      if (normal === undefined) return false;
      if (exact.has(normal)) return true;
      return patterns.length > 0 && patterns.some((pattern) => fits(pattern, new URL(normal)));
    },
  };
}

function fits(pattern: Pattern, url: URL): boolean {
  return (
    url.protocol === `${pattern.scheme}:` &&
    url.hostname.endsWith(pattern.hostSuffix) &&
    (pattern.port === "*" || url.port === pattern.port)
  );
}

/** Scheme, host and port without defaults; undefined for what is no origin (also `null`). */
function normalize(origin: string): string | undefined {
  try {
    const url = new URL(origin);
    if (url.host === "" || (url.pathname !== "/" && url.pathname !== "")) return undefined;
    return `${url.protocol}//${url.host}`;
  } catch {
    return undefined;
  }
}
