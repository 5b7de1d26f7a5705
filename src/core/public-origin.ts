/**
 * Returns the origin that the client used, for example `https://gateway.example.com`. The listener removes the
 * forwarding headers of untrusted peers, so only proxies in `config.trustedProxies` can override it.
 */

import { canonicalOrigin, parseAuthority } from "../http/host.ts";
import type { Exchange } from "./exchange.ts";

export function publicOrigin({ request, originalHost }: Exchange): string {
  const proto = request.headers.get("x-forwarded-proto")?.split(",", 1)[0]?.trim().toLowerCase();
  const host = parseAuthority(request.headers.get("x-forwarded-host")?.split(",", 1)[0]?.trim() ?? "")?.text;
  const scheme = proto === "https" || proto === "http" ? proto : request.scheme;
  const origin = `${scheme}://${host ?? originalHost}`;
  // A default port is not part of an origin.
  return canonicalOrigin(origin) ?? origin;
}
