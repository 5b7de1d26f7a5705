/**
 * Listeners of one port that are kept apart by their host names: a connection that was opened for one of them, by its
 * server name, is not used for requests to another (RFC 9110 section 15.5.20). Without a server name nothing is compared.
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
