/**
 * Paths that belong to a route besides its own, because a policy of it answers there.
 */
import type { NormalConfig, NormalRoute } from "../load/normal-config.ts";
import { pathMatch } from "../load/normal-route.ts";
import { definitionOf } from "./policy-definition.ts";

/**
 * Adds the paths that policies answer besides the route's own (well-known documents). Where several routes of a
 * gateway would answer the same path, it belongs to the route whose resource it names, else to the route at `/mcp`,
 * else to the first in the file.
 */
export function claimExtraMatches(config: NormalConfig): void {
  const claimed = new Set<string>();
  const inTurn = [...config.routes.filter(isAtMcp), ...config.routes.filter((route) => !isAtMcp(route))];
  for (const isShared of [false, true]) {
    for (const route of inTurn) {
      for (const policy of route.policies) {
        for (const match of definitionOf(policy.kind).extraMatches?.(policy.config) ?? []) {
          if ((match.isShared ?? false) === isShared) claim(route, match.exact, claimed);
        }
      }
    }
  }
}

function claim(route: NormalRoute, path: string, claimed: Set<string>): void {
  const claims = route.gateways.map((gateway) => `${gateway} ${route.hostnames.join(",")} ${path}`);
  if (claims.every((one) => claimed.has(one))) return;
  for (const one of claims) claimed.add(one);
  route.matches = [...route.matches, pathMatch({ exact: path })];
}

function isAtMcp({ matches }: NormalRoute): boolean {
  return matches.some(
    ({ path }) => ("exact" in path && path.exact === "/mcp") || ("pathPrefix" in path && path.pathPrefix === "/mcp"),
  );
}
