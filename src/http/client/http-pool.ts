/**
 * Manages the connections to one target. Connections open on demand, and the pool tries to close idle connections
 * before the server does. `HostHealth` implements passive health checking of the target.
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { Connection, type ConnectionPool } from "../h1/connection.ts";
import { openHttp2Pool } from "../h2/http2-pool.ts";
import type { HttpPool, HttpTarget } from "../http-client.ts";
import { createLookup, type Resolve } from "../lookup.ts";

const FIRST_EJECTION_MS = 1_000;
const LONGEST_EJECTION_MS = 30_000;
/** If a trial request has no result within this time, the next request is another trial. */
const TRIAL_MS = 10_000;

export interface HealthEvents {
  ejected(reason: string, forMs: number): void;
  recovered(): void;
}

/**
 * A server that does not accept connections is ejected for a growing time, up to a limit. A response resets its health.
 */
export class HostHealth {
  readonly #clock: Clock;
  readonly #events: HealthEvents;
  #failures = 0;
  #ejectedUntilMs = 0;
  #trialUntilMs = 0;

  constructor(clock: Clock, events: HealthEvents) {
    this.#clock = clock;
    this.#events = events;
  }

  get isEjected(): boolean {
    if (this.#failures === 0) return false;
    const nowMs = this.#clock.monotonicMs();
    return nowMs < this.#ejectedUntilMs || nowMs < this.#trialUntilMs;
  }

  /**
   * Called when a request is sent to the server. After a failure, the request is a trial, and the server stays ejected
   * until the trial has a result or TRIAL_MS have passed.
   */
  requestSent(): void {
    if (this.#failures > 0) this.#trialUntilMs = this.#clock.monotonicMs() + TRIAL_MS;
  }

  failed(reason: string): void {
    const nowMs = this.#clock.monotonicMs();
    this.#trialUntilMs = 0;
    // Requests that were already in flight at the first failure do not extend the ejection.
    if (this.#failures > 0 && nowMs < this.#ejectedUntilMs) return;
    const forMs = Math.min(FIRST_EJECTION_MS * 2 ** Math.min(this.#failures, 16), LONGEST_EJECTION_MS);
    this.#failures += 1;
    this.#ejectedUntilMs = nowMs + forMs;
    this.#events.ejected(reason, forMs);
  }

  worked(): void {
    if (this.#failures === 0) return;
    this.#failures = 0;
    this.#trialUntilMs = 0;
    this.#events.recovered();
  }

  describe(): { readonly health?: { readonly failures: number; readonly resting: boolean } } {
    return this.#failures === 0 ? {} : { health: { failures: this.#failures, resting: this.isEjected } };
  }
}

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

  const owner: ConnectionPool = {
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
