/**
 * Finds connections on which nothing moves: a client that stops sending its body, or one that stops reading the
 * answer. One timer looks at all of them, so that an active request costs nothing but an entry in a set.
 */
import type { Clock } from "../lib/clock.ts";

/** Long enough for a bad network, short enough that stuck clients do not pile up. */
const IDLE_LIMIT_MS = 60_000;
const LOOK_EVERY_MS = 5_000;

export interface Watched {
  /** A number that changes whenever bytes move. */
  progress(): number;
  /** True while the other side owes us something: body bytes, or reading what we wrote. */
  isWaiting(): boolean;
  expire(): void;
}

export interface IdleConnections {
  add(watched: Watched): void;
  remove(watched: Watched): void;
  stop(): void;
}

export function watchIdle(clock: Clock): IdleConnections {
  const entries = new Map<Watched, { progress: number; sinceMs: number }>();
  const timer = clock.every(LOOK_EVERY_MS, () => {
    const nowMs = clock.monotonicMs();
    for (const [watched, last] of entries) {
      const progress = watched.progress();
      if (progress !== last.progress || !watched.isWaiting()) {
        last.progress = progress;
        last.sinceMs = nowMs;
      } else if (nowMs - last.sinceMs >= IDLE_LIMIT_MS) {
        entries.delete(watched);
        watched.expire();
      }
    }
  });
  return {
    add: (watched) => void entries.set(watched, { progress: -1, sinceMs: clock.monotonicMs() }),
    remove: (watched) => void entries.delete(watched),
    stop: () => timer.cancel(),
  };
}
