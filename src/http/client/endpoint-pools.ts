/**
 * Manages the connection pools of a changing list of addresses. A pool opens when its address is first used, and
 * closes when the address is removed.
 */

import type { Clock } from "../../base/clock.ts";
import { parseAddress } from "../backend-address.ts";
import type { HttpPool, HttpTarget } from "../http-client.ts";
import { type HealthEvents, HostHealth, openHttpPool } from "./http-pool.ts";

export interface Endpoint {
  readonly address: string;
  readonly pool: HttpPool;
  readonly health: HostHealth;
}

export interface EndpointPools {
  /**
   * Selects the preferred address if it is in the list, and otherwise an address round robin. Skips ejected addresses,
   * unless all are ejected. Returns undefined if the list has no valid address.
   */
  next(addresses: readonly string[], preferred?: string): Endpoint | undefined;
  /**
   * Selects the first of the wanted addresses that is in the list, and skips ejected addresses, unless all are ejected.
   */
  first(wanted: readonly string[], addresses: readonly string[]): Endpoint | undefined;
  failing(): Readonly<Record<string, unknown>>;
  connections(): { open: number; idle: number };
  close(): void;
}

const IGNORED: HealthEvents = { ejected: () => undefined, recovered: () => undefined };

export function openEndpointPools(
  target: Pick<HttpTarget, "protocol" | "tls" | "http" | "egress">,
  clock: Clock,
  events: (address: string) => HealthEvents = () => IGNORED,
  open: (target: HttpTarget, clock: Clock) => HttpPool = openHttpPool,
): EndpointPools {
  const pools = new Map<string, Endpoint>();
  let known: readonly string[] = [];
  let nextIndex = 0;

  function removeOutdated(addresses: readonly string[]): void {
    known = addresses;
    for (const [address, { pool }] of pools) {
      if (addresses.includes(address)) continue;
      pools.delete(address);
      pool.close();
    }
  }

  function getOrOpen(address: string): Endpoint | undefined {
    const before = pools.get(address);
    if (before) return before;
    const parsed = parseAddress(address);
    if (!parsed.ok) return undefined;
    const pool = open({ ...parsed.target, ...target }, clock);
    const endpoint = { address, pool, health: new HostHealth(clock, events(address)) };
    pools.set(address, endpoint);
    return endpoint;
  }

  return {
    next(addresses, preferred) {
      if (addresses !== known) removeOutdated(addresses);
      let first = preferred !== undefined && addresses.includes(preferred) ? getOrOpen(preferred) : undefined;
      if (first !== undefined && !first.health.isEjected) return first;
      for (let i = 0; i < addresses.length; i++) {
        nextIndex = nextIndex + 1 >= addresses.length ? 0 : nextIndex + 1;
        const endpoint = getOrOpen(addresses[nextIndex] as string);
        if (endpoint !== undefined && !endpoint.health.isEjected) return endpoint;
        first ??= endpoint;
      }
      // All valid addresses are ejected. Trying one is better than rejecting the request.
      return first;
    },
    first(wanted, addresses) {
      if (addresses !== known) removeOutdated(addresses);
      const found = wanted.filter((address) => addresses.includes(address)).flatMap((one) => getOrOpen(one) ?? []);
      return found.find(({ health }) => !health.isEjected) ?? found[0];
    },
    failing: () =>
      Object.fromEntries(
        [...pools.values()].flatMap(({ address, health }) => {
          const report = health.describe().health;
          return report ? [[address, report]] : [];
        }),
      ),
    connections() {
      const sum = { open: 0, idle: 0 };
      for (const { pool } of pools.values()) {
        const { open: opened, idle } = pool.connections();
        sum.open += opened;
        sum.idle += idle;
      }
      return sum;
    },
    close() {
      for (const { pool } of pools.values()) pool.close();
      pools.clear();
    },
  };
}
