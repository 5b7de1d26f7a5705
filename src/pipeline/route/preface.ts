/**
 * Selects the policies of a route that run before the gateway's access policies: a preflight carries no credentials, and a
 * page must be able to read why its request was rejected.
 */
import type { GatewayRequest } from "../../core/exchange.ts";
import type { CompiledScope } from "../../core/policy.ts";
import type { Listener } from "../../core/topology.ts";
import type { RouteTable } from "./match-route.ts";

export function prefaceOf(listener: Listener, table: RouteTable, request: GatewayRequest): CompiledScope | undefined {
  if (listener.policies.access.length === 0) return undefined;
  const route = table.match(request);
  return (route?.policies ?? listener.unmatched).preface;
}
