/**
 * Tells every backend that the gateway ends: sessions and streams that would never end by themselves are closed.
 */
import type { Topology } from "../core/topology.ts";

export function drainBackends({ listeners }: Topology): void {
  for (const { routes } of listeners)
    for (const { backends } of routes) for (const { backend } of backends) backend.drain?.();
}
