/**
 * Redaction by header name at the moment something is shown (spec 5.8), so that headers which a transformation
 * created are covered too, while CEL and the backend keep the real values.
 */

export const REDACTED = "<redacted>";

/** Always redacted: the two of spec 5.8, cookies, and the usual places of keys that the gateway adds. */
const ALWAYS = [
  "authorization",
  "proxy-authorization",
  "cookie",
  "set-cookie",
  "x-api-key",
  "api-key",
  "x-goog-api-key",
  "x-amz-security-token",
];

export interface Redaction {
  isSensitive(headerName: string): boolean;
  headers(pairs: readonly string[]): Record<string, string | string[]>;
}

export function createRedaction(sensitiveHeaders: readonly string[] = []): Redaction {
  const names = new Set([...ALWAYS, ...sensitiveHeaders.map((name) => name.toLowerCase())]);
  return {
    isSensitive: (headerName) => names.has(headerName.toLowerCase()),
    headers(pairs) {
      const shown: Record<string, string | string[]> = Object.create(null);
      for (let i = 0; i < pairs.length; i += 2) {
        const name = pairs[i] as string;
        const value = names.has(name) ? REDACTED : (pairs[i + 1] as string);
        const before = shown[name];
        if (before === undefined) shown[name] = value;
        else if (Array.isArray(before)) before.push(value);
        else shown[name] = [before, value];
      }
      return shown;
    },
  };
}
