/**
 * Removes credentials that are meant for the gateway from requests to other servers.
 */
import { readFormPairs } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import type { HeaderList } from "../../http/headers.ts";
import { OWN_COOKIE, OWN_PREFIX, removeCookies } from "./cookies.ts";

const QUERY = peerInput("client/query");

type SentRequest = Pick<GatewayRequest, "headers" | "query">;

/**
 * Removes the credentials that authentication read, and the gateway's own cookies. `request` is the request of the
 * exchange or a copy of it.
 */
export function withholdCredentials({ credentials, attributes }: Exchange, request: SentRequest): void {
  const { headers, cookies: cookieNames, query } = credentials;
  // An internal backend is a part of the gateway.
  if (attributes.backend?.type !== "internal") withholdOwnCookies(request.headers);
  if (headers) for (const name of headers) request.headers.delete(name);
  if (cookieNames) removeCookies(request.headers, (name) => cookieNames.includes(name));
  if (query && query.length > 0)
    request.query = request.query
      .split("&")
      .filter((part) => !query.includes(parameterName(part)))
      .join("&");
}

/** Backends decode the name, so a credential is removed under every spelling of it. */
function parameterName(part: string): string {
  return readFormPairs(QUERY, part)[0]?.name ?? "";
}

/**
 * Returns a copy of the headers for a service of a policy. The session cookie of a browser login admits its bearer to
 * every route with the same login, so no service gets it.
 */
export function withoutOwnCookies(headers: HeaderList): HeaderList {
  const copy = headers.clone();
  withholdOwnCookies(copy);
  return copy;
}

export function withholdOwnCookies(headers: HeaderList): void {
  if (!headers.has("cookie") || !headers.getAll("cookie").some((line) => line.includes(OWN_PREFIX))) return;
  removeCookies(headers, (name) => OWN_COOKIE.test(name));
}
