/**
 * Errors for requests that no route may serve: no route matches, or a backend could read the path differently and bypass a
 * protected route. For example, the backend of an open route may read `/admin%2fusers` or `/admin;x` as `/admin`.
 */
import { GatewayError } from "../../core/errors.ts";
import type { GatewayRequest } from "../../core/exchange.ts";
import type { Route } from "../../core/topology.ts";
import { ambiguityIn, mayBeAmbiguous, otherReadings } from "../../http/request-path.ts";
import type { RouteTable } from "./match-route.ts";

/** Route names in an error message. */
const SHOWN_ROUTES = 10;

export function refuseAmbiguousPath(request: GatewayRequest, route: Route, table: RouteTable): void {
  const { path } = request;
  if (!mayBeAmbiguous(path)) return;
  const ambiguity = ambiguityIn(path);
  if (!(route.isProtected && ambiguity !== undefined) && !otherReadings(path).some(isProtectedElsewhere)) return;
  throw new GatewayError("bad_request", {
    message: `bad request: ${ambiguity ?? "an ambiguous spelling"} in the path of a protected route`,
  });

  function isProtectedElsewhere(reading: string): boolean {
    const other = table.match(request, reading);
    return other !== route && other?.isProtected === true;
  }
}

export function routeNotFound(request: GatewayRequest, table: RouteTable): GatewayError {
  const { method, host, path } = request;
  const names = table.evaluated(request);
  const tried = names.length === 0 ? "no route has this host name" : `tried ${names.slice(0, SHOWN_ROUTES).join(", ")}`;
  return new GatewayError("route_not_found", { detail: `nothing matches ${method} ${host}${path}: ${tried}` });
}
