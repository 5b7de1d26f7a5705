/**
 * A limit of its own for registration and token requests: they need no token and make the gateway call the identity
 * provider, so that nobody can use it to flood the provider. Counted per listener in fixed minutes.
 */

import type { Clock } from "../../base/clock.ts";
import { GatewayError } from "../../core/errors.ts";

const REQUESTS_PER_MINUTE = 600;
const WINDOW_MS = 60_000;

export interface LoginLimit {
  /** Throws a 429 when the listener's minute is used up. */
  take(listener: string): void;
}

export function createLoginLimit(clock: Clock): LoginLimit {
  const windows = new Map<string, { startedMs: number; taken: number }>();
  return {
    take(listener) {
      const nowMs = clock.monotonicMs();
      let window = windows.get(listener);
      if (!window || nowMs - window.startedMs >= WINDOW_MS) {
        window = { startedMs: nowMs, taken: 0 };
        windows.set(listener, window);
      }
      if (window.taken >= REQUESTS_PER_MINUTE) {
        const seconds = Math.ceil((WINDOW_MS - (nowMs - window.startedMs)) / 1000);
        const detail = `more than ${REQUESTS_PER_MINUTE} registration and token requests in a minute on ${listener}`;
        throw new GatewayError("rate_limited", { detail, headers: { "retry-after": String(seconds) } });
      }
      window.taken += 1;
    },
  };
}
