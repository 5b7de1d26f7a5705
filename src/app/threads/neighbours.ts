/**
 * What a thread has to do with the others: requests for routes that they own go to their doors, and requests for routes
 * that it owns come in at its own. A door is a socket without a place in the file system, named at random.
 */

import { openHttpPool } from "../../lib/client/http-pool.ts";
import type { HttpPool } from "../../lib/http/http-client.ts";
import { type OpenListener, openListener } from "../../pipeline/listen/listener.ts";
import type { ListenerEnv } from "../../pipeline/listen/listener-env.ts";
import { handle } from "../../pipeline/phases/pipeline.ts";
import type { PipelineEnv, Served } from "../../pipeline/phases/pipeline-env.ts";
import { createRouteTable } from "../../pipeline/route/match-route.ts";
import { arrivedExchange, hopTo } from "./hop.ts";
import type { ThreadData } from "./messages.ts";
import { ANY_THREAD, createOwners } from "./owned-routes.ts";

export interface Neighbours {
  readonly elsewhere: NonNullable<PipelineEnv["elsewhere"]>;
  /** From now on the others reach this thread. */
  open(): Promise<void>;
  close(): void;
}

export function createNeighbours(
  data: Pick<ThreadData, "thread" | "threads" | "doors" | "secret">,
  env: ListenerEnv,
  served: (listener: string) => Served | undefined,
): Neighbours {
  const { thread, threads, secret } = data;
  const doorOf = (number: number): string => `\0gateway-${data.doors}-${number}`;
  const ownerOf = createOwners(threads);
  const hops = new Map<number, { readonly pool: HttpPool; readonly served: Served }>();
  let door: OpenListener | undefined;

  // The thread that serves a request counts, traces and logs it.
  const passing: PipelineEnv = {
    clock: env.clock,
    redaction: env.redaction,
    random: env.random,
    trace: () => undefined,
    settled: () => undefined,
    defect: env.defect,
  };

  function hop(owner: number): Served {
    let known = hops.get(owner);
    if (known === undefined) {
      const target = { protocol: "http", host: "thread", port: 0, socketPath: doorOf(owner) } as const;
      const pool = openHttpPool(target, env.clock);
      known = { pool, served: hopTo(pool, secret) };
      hops.set(owner, known);
    }
    return known.served;
  }

  const doorEnv: ListenerEnv = {
    ...env,
    limits: { ...env.limits, maxConnections: env.limits.maxConnections * threads },
    // The thread at the other end has judged it.
    isTrustedPeer: () => true,
    elsewhere(_nothing, exchange, sink) {
      const arrived = arrivedExchange(exchange, secret);
      const target = arrived && served(arrived.listener);
      if (arrived === undefined || target === undefined) return false;
      handle(env, target, arrived, sink);
      return true;
    },
  };

  return {
    elsewhere(from, exchange, sink) {
      const owner = ownerOf(from, exchange);
      if (owner === ANY_THREAD || owner === thread) return false;
      handle(passing, hop(owner), exchange, sink);
      return true;
    },
    async open() {
      const at = { address: undefined, port: 0, tls: undefined, path: doorOf(thread) };
      // Whoever comes without the secret finds a listener without routes.
      const { listener } = hop(thread);
      door = await openListener(at, { listener: { ...listener, routes: [] }, table: createRouteTable([]) }, doorEnv);
    },
    close() {
      door?.destroy();
      for (const { pool } of hops.values()) void pool.close();
    },
  };
}
