/**
 * Manages the connections to one target. Connections open on demand, and the pool tries to close idle connections
 * before the server does.
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { Connection, type ConnectionOwner } from "../h1/connection.ts";
import { openHttp2Pool } from "../h2/http2-pool.ts";
import type { HttpPool, HttpTarget } from "../http-client.ts";
import { createLookup, type Resolve } from "../lookup.ts";

/** A Node server closes an idle connection after 5 s by default, so older ones are not reused. */
const IDLE_MS = 4_000;
/** Idle connections are not reused after this share of the timeout in the server's `keep-alive` header. */
const SHARE_OF_HINT = 0.8;
const LOOK_EVERY_MS = 1_000;

export function openHttpPool(target: HttpTarget, clock: Clock = systemClock, resolve?: Resolve): HttpPool {
  const { http = "http1", protocol } = target;
  // Without TLS there is no ALPN negotiation.
  if (http === "http1" || (http === "auto" && protocol === "http")) return openHttp1Pool(target, clock, resolve);
  const fallback = http === "auto" ? () => openHttp1Pool(target, clock, resolve) : undefined;
  return openHttp2Pool(target, clock, resolve, fallback);
}

/** Free connections form a stack, so the most recently used one is reused first. */
function openHttp1Pool(target: HttpTarget, clock: Clock, resolve: Resolve | undefined): HttpPool {
  const idle: Connection[] = [];
  let open = 0;
  let isClosed = false;

  const owner: ConnectionOwner = {
    clock,
    lookup: createLookup(clock, resolve),
    free(connection) {
      if (isClosed) {
        connection.close();
        return;
      }
      connection.idleSinceMs = clock.monotonicMs();
      idle.push(connection);
    },
    gone(connection) {
      open -= 1;
      const index = idle.lastIndexOf(connection);
      if (index >= 0) idle.splice(index, 1);
    },
  };

  // The longest idle connections are at the bottom of the stack.
  const timer = clock.every(LOOK_EVERY_MS, () => {
    const nowMs = clock.monotonicMs();
    while (idle[0] !== undefined && isTooOld(idle[0], nowMs)) idle[0].close();
  });

  /**
   * Checks the age again, because the server may close a connection between two timer events or while the event loop
   * is blocked.
   */
  function take(): Connection {
    for (let warm = idle.pop(); warm !== undefined; warm = idle.pop()) {
      if (!isTooOld(warm, clock.monotonicMs())) return warm;
      warm.close();
    }
    open += 1;
    return new Connection(target, owner, open - 1);
  }

  return {
    send: (request, receiver, health) => take().send(request, receiver, health),
    connections: () => ({ open, idle: idle.length }),
    close() {
      isClosed = true;
      timer.cancel();
      for (const connection of [...idle]) connection.close();
    },
  };
}

function isTooOld({ idleSinceMs, serverKeepsMs }: Connection, nowMs: number): boolean {
  const limitMs = serverKeepsMs === undefined ? IDLE_MS : Math.min(IDLE_MS, serverKeepsMs * SHARE_OF_HINT);
  return nowMs - idleSinceMs >= limitMs;
}
