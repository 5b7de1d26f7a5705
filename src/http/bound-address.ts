/**
 * A listener's address as it is bound, for logs and warnings: what listens everywhere says so.
 */

/** `0.0.0.0:3000`, `[::1]:3000`. */
export function boundAddress(address: string | undefined, port: number): string {
  const host = address ?? "0.0.0.0";
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}
