/**
 * Detects stalled connections: a client that stops sending its body, or one that stops reading the response. One timer
 * checks all of them, so that an active request costs only an entry in a list.
 */
import type { Clock } from "../../base/clock.ts";

/** Long enough for a bad network, short enough that stalled clients do not accumulate. */
export const IDLE_LIMIT_MS = 60_000;
const LOOK_EVERY_MS = 5_000;

export interface Watched {
  /** A number that changes whenever bytes move. */
  progress(): number;
  /** Whether the peer must act: send body bytes, or read the response. */
  isWaiting(): boolean;
  /** The maximum time without progress. Defaults to `IDLE_LIMIT_MS`. */
  idleLimitMs?(): number;
  expire(): void;
}

/** One watched connection, with its index in the list. */
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
  // An array whose entries have their index. A map that every request enters and leaves made objects outlive their
  // request and tripled the work of the garbage collector.
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
    // Backwards, because an expired entry is replaced by the last one, which was already checked.
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
