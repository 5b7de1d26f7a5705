/**
 * Returns 421 for requests to another listener than the connection's server name (SNI) selected, if several listeners share
 * a port (RFC 9110 section 15.5.20). Without a server name nothing is compared.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { NamedEntries } from "../../http/server-names.ts";
import { hostnameOf } from "./match-route.ts";

export function refuseMisdirected(
  parts: NamedEntries<string> | undefined,
  { source: { serverName }, request }: Pick<Exchange, "source" | "request">,
): void {
  if (parts === undefined || serverName === undefined) return;
  const host = hostnameOf(request.host);
  if (parts.find(serverName) === parts.find(host)) return;
  throw new GatewayError("misdirected_request", {
    detail: `the connection is for ${serverName}, the request for ${host}`,
  });
}
