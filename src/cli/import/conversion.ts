/**
 * A configuration on its way from another program's form to ours: the values, and what the reader must know about them.
 * What protects a route and has no counterpart closes the route: an import must never open what was closed.
 */

export type Values = Record<string, unknown>;

export interface Conversion {
  readonly config: Values;
  /** Fields of the source that are not in the result, each with the reason. */
  readonly leftOut: string[];
  /** What is in the result and works differently. */
  readonly differs: string[];
  /** Parts of the result that reject every request, each with the reason. */
  readonly closed: string[];
}

/** What keeps requests or contents out; a route that loses a condition would take requests that were not for it. */
const PROTECTS = new Set([
  "apiKey",
  "authorization",
  "basicAuth",
  "extAuthz",
  "guardrails",
  "hostnames",
  "jwtAuth",
  "matches",
  "mcpAuthentication",
  "mcpAuthorization",
  "mcpGuardrails",
  "networkAuthorization",
  "oidc",
  "promptGuard",
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

export function defined(values: Values): Values {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

/** Names every field of an object that the converter did not take. */
export function leaveOutOthers(
  into: Conversion,
  at: string,
  source: Values,
  taken: readonly string[],
  why: string,
): void {
  for (const name of Object.keys(source)) if (!taken.includes(name)) into.leftOut.push(`${at}${name}: ${why}`);
}

/** Everything below a policy that protects counts: a part of it may be what kept a request out. */
export function protectingPolicy(path: readonly (string | number)[]): string | undefined {
  const found = path.find((part, index) => index > 0 && PROTECTS.has(String(part)));
  return found === undefined ? undefined : String(found);
}

/** Rejects every request of a scope; `owner` is what has `policies`. */
export function close(into: Conversion, owner: Values, at: string, why: string): void {
  const policies = asObject(owner.policies);
  owner.policies = policies;
  policies.authorization = { rules: [{ deny: "true" }] };
  const line = `${at}: ${why}`;
  if (!into.closed.includes(line)) into.closed.push(line);
}
