/**
 * The connection pools of a list of addresses that changes: one is opened when its address is first used, and closed
 * when the address is gone.
 */

import { parseAddress } from "../http/backend-address.ts";
import type { HttpPool, HttpTarget } from "../http/http-client.ts";
import type { Clock } from "../process/clock.ts";
import { openHttpPool } from "./http-pool.ts";

export interface EndpointPools {
  /** The address whose turn it is; undefined if there is none. */
  next(addresses: readonly string[]): { readonly address: string; readonly pool: HttpPool } | undefined;
  connections(): { open: number; idle: number };
  close(): void;
}

export function openEndpointPools(
  target: Pick<HttpTarget, "protocol" | "tls" | "http">,
  clock: Clock,
  open: (target: HttpTarget, clock: Clock) => HttpPool = openHttpPool,
): EndpointPools {
  const pools = new Map<string, HttpPool>();
  let known: readonly string[] = [];
  let turn = 0;

  function adopt(addresses: readonly string[]): void {
    known = addresses;
    for (const [address, pool] of pools) {
      if (addresses.includes(address)) continue;
      pools.delete(address);
      pool.close();
    }
  }

  function poolOf(address: string): HttpPool | undefined {
    const before = pools.get(address);
    if (before) return before;
    const parsed = parseAddress(address);
    if (!parsed.ok) return undefined;
    const pool = open({ ...parsed.target, ...target }, clock);
    pools.set(address, pool);
    return pool;
  }

  return {
    next(addresses) {
      if (addresses !== known) adopt(addresses);
      turn = turn + 1 >= addresses.length ? 0 : turn + 1;
      const address = addresses[turn];
      const pool = address === undefined ? undefined : poolOf(address);
      return address === undefined || pool === undefined ? undefined : { address, pool };
    },
    connections() {
      const sum = { open: 0, idle: 0 };
      for (const pool of pools.values()) {
        const { open: opened, idle } = pool.connections();
        sum.open += opened;
        sum.idle += idle;
      }
      return sum;
    },
    close() {
      for (const pool of pools.values()) pool.close();
      pools.clear();
    },
  };
}
