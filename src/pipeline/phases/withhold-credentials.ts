/**
 * A credential that authentication read is for the gateway: a backend gets it only if a policy says so.
 */
import type { Exchange } from "../../core/exchange.ts";

export function withholdCredentials({ credentialHeaders, credentialQuery, request }: Exchange): void {
  if (credentialHeaders) for (const name of credentialHeaders) request.headers.delete(name);
  if (credentialQuery && credentialQuery.length > 0) {
    request.query = request.query
      .split("&")
      .filter((part) => !credentialQuery.includes(part.split("=", 1)[0] ?? ""))
      .join("&");
  }
}
