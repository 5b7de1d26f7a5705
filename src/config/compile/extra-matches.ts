/**
 * Adds paths to a route that its policies or its backend serve, such as well-known documents.
 */
import { backends } from "../../backends/index.ts";
import { type OwnedKey, ownedKey } from "../../base/owner.ts";
import type { ExtraMatch } from "../../core/policy.ts";
import { ownerOf } from "../documents/documents.ts";
import type { NormalConfig, NormalRoute, PlacedPolicy } from "../load/normal-config.ts";
import { pathMatch } from "../load/normalize.ts";
import { definitionOf } from "./compiled-scope.ts";

/**
 * If several routes of a gateway would serve the same path, matches that are not shared take precedence, then routes at
 * `/mcp`, then the first route. A route takes no path from a route of another namespace: if both have the same match, the
 * usual precedence decides.
 */
export function claimExtraMatches(config: NormalConfig): void {
  const claimed = new Set<OwnedKey>();
  const byPriority = [...config.routes.filter(isAtMcp), ...config.routes.filter((route) => !isAtMcp(route))];
  // Computed before any path is added, so that only configured paths count.
  const extra = new Map(config.routes.map((route) => [route, extraMatches(route, config)]));
  for (const isShared of [false, true]) {
    for (const route of byPriority) {
      for (const match of extra.get(route) ?? [])
        if ((match.isShared ?? false) === isShared) claim(route, match.exact, claimed);
    }
  }
}

export function readsCredential({ kind }: Pick<PlacedPolicy, "kind">): boolean {
  return definitionOf(kind).requiresCredential !== undefined;
}

function extraMatches(route: NormalRoute, { gateways }: NormalConfig): readonly ExtraMatch[] {
  const ofPolicies = route.policies.flatMap((policy) => definitionOf(policy.kind).extraMatches?.(policy.config) ?? []);
  const [backend] = route.backends;
  const outer = gateways.filter(({ name }) => route.gateways.includes(name)).flatMap(({ policies }) => policies);
  if (backend === undefined || route.backends.length > 1 || [...outer, ...route.policies].some(readsCredential))
    return ofPolicies;
  const definition = backends.find(({ key }) => key === backend.key);
  const paths = route.matches.flatMap(({ path }) =>
    "pathPrefix" in path ? [path.pathPrefix] : "exact" in path ? [path.exact] : [],
  );
  return [...ofPolicies, ...(definition?.extraMatches?.(backend.config, paths) ?? [])];
}

function claim(route: NormalRoute, path: string, claimed: Set<OwnedKey>): void {
  const owner = ownerOf(route.place.document);
  const claims = route.gateways.map((gateway) => ownedKey(owner, `${gateway} ${route.hostnames.join(",")} ${path}`));
  if (claims.every((one) => claimed.has(one))) return;
  for (const one of claims) claimed.add(one);
  route.matches = [...route.matches, pathMatch({ exact: path })];
}

function isAtMcp({ matches }: NormalRoute): boolean {
  return matches.some(
    ({ path }) => ("exact" in path && path.exact === "/mcp") || ("pathPrefix" in path && path.pathPrefix === "/mcp"),
  );
}

export function trustedHosts(route: NormalRoute): string[] {
  return [
    ...route.hostnames,
    ...route.policies.flatMap(({ kind, config }) => definitionOf(kind).trustedHosts?.(config) ?? []),
  ];
}
