/**
 * Holds the result of converting another program's configuration, with notes for the user.
 */

export type Values = Record<string, unknown>;

export interface Conversion {
  readonly config: Values;
  readonly leftOut: string[];
  readonly differs: string[];
  readonly closed: string[];
}

/**
 * These fields restrict requests or content, or verify a peer. Route conditions and gateways are included, because a
 * route without them gets more requests.
 */
const PROTECTS = new Set([
  "apiKey",
  "authorization",
  "backendAuth",
  "backendTLS",
  "basicAuth",
  "buffer",
  "clientAuth",
  "csrf",
  "extAuthz",
  "extProc",
  "gateways",
  "guardrails",
  "hostnames",
  "jwtAuth",
  "localRateLimit",
  "matches",
  "mcpAuthentication",
  "mcpAuthorization",
  "mcpGuardrails",
  "networkAuthorization",
  "oidc",
  "perMinute",
  "promptGuard",
  "rateLimit",
  "remoteRateLimit",
  "tls",
  "tools",
]);

export function newConversion(config: Values = {}): Conversion {
  return { config, leftOut: [], differs: [], closed: [] };
}

export function isObject(value: unknown): value is Values {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function asObject(value: unknown): Values {
  return isObject(value) ? value : {};
}

export function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
}

export function leaveOutOthers(
  into: Conversion,
  at: string,
  source: Values,
  taken: readonly string[],
  why: string,
): void {
  for (const name of Object.keys(source)) if (!taken.includes(name)) into.leftOut.push(`${at}${name}: ${why}`);
}

/** Returns the fields that are not in `taken`. The loader rejects them, so a protection with such a field is closed. */
export function unknownFields(source: Values, taken: readonly string[]): Values {
  return Object.fromEntries(Object.entries(source).filter(([name]) => !taken.includes(name)));
}

export function protectingPolicy(path: readonly (string | number)[]): string | undefined {
  const found = path.find((part, index) => index > 0 && PROTECTS.has(String(part)));
  return found === undefined ? undefined : String(found);
}

/** Returns the first protecting field anywhere in the value, which would be lost with it. */
export function protectionIn(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  for (const [name, inner] of Object.entries(value)) {
    const found = PROTECTS.has(name) ? name : protectionIn(inner);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Makes a scope reject every request. `owner` is the object with the `policies` field. */
export function close(into: Conversion, owner: Values, at: string, why: string): void {
  const policies = asObject(owner.policies);
  owner.policies = policies;
  policies.authorization = { rules: [{ deny: "true" }] };
  const line = `${at}: ${why}`;
  if (!into.closed.includes(line)) into.closed.push(line);
}
