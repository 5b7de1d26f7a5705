/**
 * Lists the endpoints that a playground can connect to: each listener and path with a backend of the given type.
 */
import type { Dump } from "./dump.ts";

export interface Endpoint {
  /** Identifies the endpoint in URLs as `listener/route`. */
  readonly id: string;
  readonly listener: string;
  readonly port: number;
  readonly route: string;
  readonly path: string;
  /** Contains the first host name of the route without a wildcard, or undefined if there is none. */
  readonly host: string | undefined;
  readonly backends: readonly string[];
}

export function endpointsOf(dump: Dump | undefined, type: "mcp" | "ai"): Endpoint[] {
  if (!dump) return [];
  const wanted = new Set(dump.backends.filter((backend) => backend.type === type).map(({ name }) => name));
  return dump.routes.flatMap((route) => {
    const backends = route.backends.map(({ name }) => name).filter((name) => wanted.has(name));
    if (backends.length === 0) return [];
    const path = route.matches
      .map(({ path: { exact, pathPrefix } }) => exact ?? pathPrefix)
      .find((one) => one !== undefined && !one.startsWith("/.well-known") && one !== "/sse");
    const host = route.hostnames.find((name) => !name.includes("*"));
    return route.gateways.map((listener) => ({
      id: `${listener}/${route.name}`,
      listener,
      port: dump.listeners.find(({ name }) => name === listener)?.port ?? 0,
      route: route.name,
      path: path ?? "/",
      host,
      backends,
    }));
  });
}
