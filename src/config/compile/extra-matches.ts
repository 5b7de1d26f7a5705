/**
 * Paths that belong to a route besides its own, because a policy of it answers there.
 */
import type { NormalConfig, NormalRoute } from "../load/normal-config.ts";
import { pathMatch } from "../load/normal-route.ts";
import { definitionOf } from "./policy-definition.ts";

/**
 * Adds the paths that policies answer besides the route's own (well-known documents). Where several routes of a
 * gateway would answer the same path, it belongs to the route at `/mcp`, else to the first in the file.
 */
export function claimExtraMatches(config: NormalConfig): void {
  const claimed = new Set<string>();
  const isAtMcp = (route: NormalRoute): boolean =>
    route.matches.some(({ path }) => "exact" in path && path.exact === "/mcp");
  const inTurn = [...config.routes.filter(isAtMcp), ...config.routes.filter((route) => !isAtMcp(route))];
  for (const route of inTurn) {
    for (const policy of route.policies) {
      for (const match of definitionOf(policy.kind).extraMatches?.(policy.config) ?? []) {
        const claims = route.gateways.map(
          (gateway) => `${gateway} ${route.hostnames.join(",")} ${JSON.stringify(match)}`,
        );
        if (claims.every((claim) => claimed.has(claim))) continue;
        for (const claim of claims) claimed.add(claim);
        route.matches = [...route.matches, pathMatch(match)];
      }
    }
  }
}
