/**
 * Chooses a backend of a route. A canary that takes the request comes first. Otherwise the choice is random by weight.
 * Ejected backends are skipped if others are available.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { Route, WeightedBackend } from "../../core/topology.ts";

/** `random` returns a number in [0, 1). */
export function chooseBackend(route: Route, random: () => number, exchange?: Exchange): WeightedBackend | undefined {
  const { backends, totalWeight } = route;
  if (backends.length === 1) return totalWeight > 0 ? backends[0] : undefined;
  if (exchange !== undefined)
    for (const candidate of backends)
      if (candidate.canary?.takes(exchange, random) && candidate.backend.health?.isEjected !== true) return candidate;
  if (totalWeight <= 0) return undefined;
  const ejectedWeight = totalEjectedWeight(backends);
  // If all backends are ejected, trying one is better than failing.
  const skipsEjected = ejectedWeight > 0 && ejectedWeight < totalWeight;
  let remaining = random() * (skipsEjected ? totalWeight - ejectedWeight : totalWeight);
  for (const candidate of backends) {
    if (skipsEjected && candidate.backend.health?.isEjected) continue;
    remaining -= candidate.weight;
    if (remaining < 0) return candidate;
  }
  return backends.findLast(
    (candidate) => candidate.weight > 0 && !(skipsEjected && candidate.backend.health?.isEjected),
  );
}

function totalEjectedWeight(backends: readonly WeightedBackend[]): number {
  let weight = 0;
  for (const candidate of backends) if (candidate.backend.health?.isEjected) weight += candidate.weight;
  return weight;
}
