/**
 * A weighted pick among the backends of a route, passing over those that cannot be reached now, if there are others. Pure: the
 * random number is passed in.
 */
import type { Exchange } from "../../core/exchange.ts";
import type { Route, WeightedBackend } from "../../core/topology.ts";

/** `random` is in [0, 1). Undefined if there is no backend or every weight is 0. */
export function chooseBackend(route: Route, random: () => number, exchange?: Exchange): WeightedBackend | undefined {
  const { backends, totalWeight } = route;
  if (backends.length === 1) return totalWeight > 0 ? backends[0] : undefined;
  if (exchange !== undefined)
    for (const one of backends)
      if (one.canary?.takes(exchange, random) && one.backend.health?.isResting !== true) return one;
  if (totalWeight <= 0) return undefined;
  const resting = restingWeight(backends);
  // Where none can be reached, asking beats refusing.
  const passesOver = resting > 0 && resting < totalWeight;
  let rest = random() * (passesOver ? totalWeight - resting : totalWeight);
  for (const one of backends) {
    if (passesOver && one.backend.health?.isResting) continue;
    rest -= one.weight;
    if (rest < 0) return one;
  }
  return backends.findLast((one) => one.weight > 0 && !(passesOver && one.backend.health?.isResting));
}

function restingWeight(backends: readonly WeightedBackend[]): number {
  let weight = 0;
  for (const one of backends) if (one.backend.health?.isResting) weight += one.weight;
  return weight;
}
