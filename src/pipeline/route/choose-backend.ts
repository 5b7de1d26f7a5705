/**
 * Chooses a backend of a route: that of the client's session, or a canary that takes the request. Otherwise the choice
 * is random by weight. Ejected backends are skipped if others are available.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { Route, WeightedBackend } from "../../core/topology.ts";

/** `random` returns a number in [0, 1). */
export function chooseBackend(route: Route, random: () => number, exchange?: Exchange): WeightedBackend | undefined {
  const { backends, totalWeight } = route;
  if (backends.length === 1) return totalWeight > 0 ? backends[0] : undefined;
  if (exchange !== undefined)
    for (const candidate of backends)
      if (candidate.canary?.takes(exchange, random) && candidate.backend.routing?.health?.isEjected !== true)
        return candidate;
  if (totalWeight <= 0) return undefined;
  const ejectedWeight = totalEjectedWeight(backends);
  // If all backends are ejected, trying one is better than failing.
  const skipsEjected = ejectedWeight > 0 && ejectedWeight < totalWeight;
  let remaining = random() * (skipsEjected ? totalWeight - ejectedWeight : totalWeight);
  for (const candidate of backends) {
    if (skipsEjected && candidate.backend.routing?.health?.isEjected) continue;
    remaining -= candidate.weight;
    if (remaining < 0) return candidate;
  }
  return backends.findLast(
    (candidate) => candidate.weight > 0 && !(skipsEjected && candidate.backend.routing?.health?.isEjected),
  );
}

/**
 * Returns the backend of the client's session, even if its weight is 0, and sets its endpoint. Returns undefined if the
 * client has no session, or the backend is ejected and others are available.
 */
export function chooseBySession(route: Route, exchange: Exchange): WeightedBackend | undefined {
  const server = route.policies.settings.sessions?.find(exchange, route);
  const chosen = server && route.backends[server.index];
  if (chosen === undefined) return undefined;
  const isAvailable = ({ weight, backend }: WeightedBackend): boolean =>
    weight > 0 && backend.routing?.health?.isEjected !== true;
  if (chosen.backend.routing?.health?.isEjected === true && route.backends.some(isAvailable)) return undefined;
  exchange.upstream.preferred = server?.address;
  return chosen;
}

function totalEjectedWeight(backends: readonly WeightedBackend[]): number {
  let weight = 0;
  for (const candidate of backends) if (candidate.backend.routing?.health?.isEjected) weight += candidate.weight;
  return weight;
}
