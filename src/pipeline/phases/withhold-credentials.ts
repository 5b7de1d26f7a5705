/**
 * A credential that authentication read is for the gateway: a backend gets it only if a policy says so. The same holds for the
 * cookies of browser sessions, which browsers send to every route of the host.
 */
import type { Exchange } from "../../core/exchange.ts";
import { withholdOwnCookies } from "../../identity/login/browser-flow.ts";

export function withholdCredentials({ credentials, facts, request }: Exchange): void {
  if (facts.backend?.type !== "internal") withholdOwnCookies(request.headers);
  if (credentials.headers) for (const name of credentials.headers) request.headers.delete(name);
  const { query: credentialQuery } = credentials;
  if (credentialQuery && credentialQuery.length > 0) {
    request.query = request.query
      .split("&")
      .filter((part) => !credentialQuery.includes(part.split("=", 1)[0] ?? ""))
      .join("&");
  }
}
