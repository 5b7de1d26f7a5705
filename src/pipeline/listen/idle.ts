/**
 * Finds connections on which nothing moves: a client that stops sending its body, or one that stops reading the
 * answer. One timer looks at all of them, so that an active request costs nothing but an entry in a set.
 */
import type { Clock } from "../../base/clock.ts";

/** Long enough for a bad network, short enough that stuck clients do not pile up. */
export const IDLE_LIMIT_MS = 60_000;
const LOOK_EVERY_MS = 5_000;

export interface Watched {
  /** A number that changes whenever bytes move. */
  progress(): number;
  /** True while the other side owes us something: body bytes, or reading what we wrote. */
  isWaiting(): boolean;
  /** How long nothing may move; without it, the limit of all requests. */
  idleLimitMs?(): number;
  expire(): void;
}

/** One connection that is watched; it knows its place in the list. */
export interface WatchedPlace {
  readonly watched: Watched;
  progress: number;
  sinceMs: number;
  place: number;
}

export interface IdleConnections {
  add(watched: Watched): WatchedPlace;
  remove(place: WatchedPlace): void;
  stop(): void;
}

export function watchIdle(clock: Clock): IdleConnections {
  // An array in which each knows its place: a map that every request enters and leaves made objects outlive their
  // request and tripled the collector's work.
  const entries: WatchedPlace[] = [];

  function remove(entry: WatchedPlace): void {
    const last = entries[entries.length - 1];
    if (entries[entry.place] !== entry || last === undefined) return;
    entries[entry.place] = last;
    last.place = entry.place;
    entries.pop();
  }

  const timer = clock.every(LOOK_EVERY_MS, () => {
    const nowMs = clock.monotonicMs();
    // From the end: whoever expires gives its place to one that was looked at already.
    for (let i = entries.length - 1; i >= 0; i--) {
      const entry = entries[i] as WatchedPlace;
      const progress = entry.watched.progress();
      if (progress !== entry.progress || !entry.watched.isWaiting()) {
        entry.progress = progress;
        entry.sinceMs = nowMs;
      } else if (nowMs - entry.sinceMs >= (entry.watched.idleLimitMs?.() ?? IDLE_LIMIT_MS)) {
        remove(entry);
        entry.watched.expire();
      }
    }
  });
  return {
    add(watched) {
      const entry: WatchedPlace = { watched, progress: -1, sinceMs: clock.monotonicMs(), place: entries.length };
      entries.push(entry);
      return entry;
    },
    remove,
    stop: () => timer.cancel(),
  };
}
