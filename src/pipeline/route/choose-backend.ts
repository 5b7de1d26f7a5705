/**
 * A weighted pick among the backends of a route. Pure: the random number is passed in.
 */
import type { Route, WeightedBackend } from "../../core/topology.ts";

/** `random` is in [0, 1). Undefined if there is no backend or every weight is 0. */
export function chooseBackend(route: Route, random: () => number): WeightedBackend | undefined {
  const { backends, totalWeight } = route;
  if (totalWeight <= 0) return undefined;
  if (backends.length === 1) return backends[0];
  let rest = random() * totalWeight;
  for (const one of backends) {
    rest -= one.weight;
    if (rest < 0) return one;
  }
  return backends.findLast((one) => one.weight > 0);
}
