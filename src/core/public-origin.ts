/**
 * Returns the origin that the client used, for example `https://gateway.example.com`. The listener removes the
 * forwarding headers of untrusted peers, so only proxies in `config.trustedProxies` can override it.
 */
import type { Exchange } from "./exchange.ts";

export function publicOrigin({ request, originalHost }: Exchange): string {
  const proto = request.headers.get("x-forwarded-proto")?.split(",", 1)[0]?.trim().toLowerCase();
  const host = request.headers.get("x-forwarded-host")?.split(",", 1)[0]?.trim();
  const scheme = proto === "https" || proto === "http" ? proto : request.scheme;
  return `${scheme}://${host !== undefined && /^[\w.:[\]-]+$/.test(host) ? host : originalHost}`;
}
