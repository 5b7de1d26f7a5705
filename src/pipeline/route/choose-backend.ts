/** Chooses a backend of a route at random by weight. Ejected backends are skipped if others are available. */
import type { Exchange } from "../../core/exchange.ts";
import type { Route, WeightedBackend } from "../../core/topology.ts";

/** `random` returns a number in [0, 1). The result is undefined if there is no backend or all weights are 0. */
export function chooseBackend(route: Route, random: () => number, exchange?: Exchange): WeightedBackend | undefined {
  const { backends, totalWeight } = route;
  if (backends.length === 1) return totalWeight > 0 ? backends[0] : undefined;
  if (exchange !== undefined)
    for (const one of backends)
      if (one.canary?.takes(exchange, random) && one.backend.health?.isEjected !== true) return one;
  if (totalWeight <= 0) return undefined;
  const resting = restingWeight(backends);
  // If all backends are ejected, trying one is better than failing.
  const passesOver = resting > 0 && resting < totalWeight;
  let rest = random() * (passesOver ? totalWeight - resting : totalWeight);
  for (const one of backends) {
    if (passesOver && one.backend.health?.isEjected) continue;
    rest -= one.weight;
    if (rest < 0) return one;
  }
  return backends.findLast((one) => one.weight > 0 && !(passesOver && one.backend.health?.isEjected));
}

function restingWeight(backends: readonly WeightedBackend[]): number {
  let weight = 0;
  for (const one of backends) if (one.backend.health?.isEjected) weight += one.weight;
  return weight;
}
