/**
 * Requests that no route may serve: nothing matches them, or their path hides a separator (`%2f`) where a protected
 * route could be meant. The backend of an open route may read `/admin%2fusers` as `/admin/users`.
 */
import { GatewayError } from "../../core/errors.ts";
import type { GatewayRequest } from "../../core/exchange.ts";
import { hasEncodedSeparator, pathForMatching, withSeparatorsDecoded } from "../../core/request-path.ts";
import type { Route } from "../../core/topology.ts";
import type { RouteTable } from "./match-route.ts";

/** Names in a message; a gateway may have thousands of routes. */
const SHOWN_ROUTES = 10;

export function refuseHiddenPath(request: GatewayRequest, route: Route, table: RouteTable): void {
  if (!hasEncodedSeparator(request.path)) return;
  const meant = pathForMatching(withSeparatorsDecoded(request.path));
  if (!route.isProtected && table.match(request, meant)?.isProtected !== true) return;
  throw new GatewayError("bad_request", {
    message: "bad request: an encoded separator in the path of a protected route",
  });
}

export function routeNotFound(request: GatewayRequest, table: RouteTable): GatewayError {
  const { method, host, path } = request;
  const names = table.evaluated(request);
  const tried = names.length === 0 ? "no route has this host name" : `tried ${names.slice(0, SHOWN_ROUTES).join(", ")}`;
  return new GatewayError("route_not_found", { detail: `nothing matches ${method} ${host}${path}: ${tried}` });
}
