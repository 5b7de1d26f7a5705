/**
 * The origin under which the client called the gateway, for example `https://gateway.example.com`. The listener keeps forwarding
 * headers of trusted proxies only, so a proxy that terminates TLS is believed if `config.trustedProxies` names it.
 */
import type { Exchange } from "./exchange.ts";

export function publicOrigin({ request, originalHost }: Exchange): string {
  const proto = request.headers.get("x-forwarded-proto")?.split(",", 1)[0]?.trim().toLowerCase();
  const host = request.headers.get("x-forwarded-host")?.split(",", 1)[0]?.trim();
  const scheme = proto === "https" || proto === "http" ? proto : request.scheme;
  return `${scheme}://${host !== undefined && /^[\w.:[\]-]+$/.test(host) ? host : originalHost}`;
}
