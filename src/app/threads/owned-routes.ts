/**
 * Which thread serves a request. Sessions, child processes and shared servers live in one thread, so a route with MCP
 * backends belongs to one of them, by its name; every other route is served by whichever thread accepted the connection.
 * Where the gateway's own policies may change what a request is for, the whole listener belongs to one thread.
 */
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import type { Listener, Route } from "../../core/topology.ts";
import type { Served } from "../../pipeline/phases/pipeline-env.ts";

/** Served where it was accepted. */
export const ANY_THREAD = 0;

type OwnerOf = (served: Served, exchange: Exchange) => number;

export function createOwners(threads: number): OwnerOf {
  const known = new WeakMap<Listener, OwnerOf>();
  return (served, exchange) => {
    let ownerOf = known.get(served.listener);
    if (ownerOf === undefined) {
      ownerOf = ownersOf(served.listener, threads);
      known.set(served.listener, ownerOf);
    }
    return ownerOf(served, exchange);
  };
}

function ownersOf(listener: Listener, threads: number): OwnerOf {
  const owned = new Set(listener.routes.filter(isOwned));
  if (owned.size === 0) return () => ANY_THREAD;
  if (listener.policies.shape.length > 0) {
    const owner = threadOf([...owned].map(({ name }) => name).sort()[0] ?? "", threads);
    return () => owner;
  }
  const owners = new Map([...owned].map((route) => [route, threadOf(route.name, threads)]));
  return ({ table }, { request }) => {
    const route = matched(table, request);
    return (route && owners.get(route)) ?? ANY_THREAD;
  };
}

/** A request that no route can be chosen for is rejected by the thread that accepted it. */
function matched(table: Served["table"], request: Exchange["request"]): Route | undefined {
  try {
    return table.match(request);
  } catch (error) {
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

function isOwned({ backends }: Route): boolean {
  return backends.some(({ backend }) => backend.facts.type === "mcp");
}

/** From 1. */
export function threadOf(name: string, threads: number): number {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (Math.imul(hash, 31) + name.charCodeAt(i)) | 0;
  return 1 + ((hash >>> 0) % threads);
}
