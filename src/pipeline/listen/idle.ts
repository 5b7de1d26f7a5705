/**
 * Detects peers that stop sending or reading. One timer checks all watched connections.
 */
import type { Duplex } from "node:stream";
import type { Clock } from "../../base/clock.ts";

export const IDLE_LIMIT_MS = 60_000;
const LOOK_EVERY_MS = 5_000;

export interface Watched {
  /** Returns a number that changes whenever bytes are transferred. */
  progress(): number;
  /** Returns whether the time without progress counts. */
  isWaiting(): boolean;
  /** Returns the maximum time without progress, by default `IDLE_LIMIT_MS`. */
  idleLimitMs?(): number;
  expire(): void;
}

/** Watches two connections between which bytes are relayed. If a side does not read, the shorter limit applies. */
export function joinedConnections(
  sides: readonly [client: Duplex, backend: Duplex],
  limitMs: number,
  relayedBytes: () => number,
  expire: () => void,
): Watched {
  const waitingBytes = (): number => sides[0].writableLength + sides[1].writableLength;
  return {
    // The value grows when bytes arrive and when buffered bytes are written.
    progress: () => 2 * relayedBytes() - waitingBytes(),
    isWaiting: () => true,
    idleLimitMs: () => (waitingBytes() > 0 ? Math.min(IDLE_LIMIT_MS, limitMs) : limitMs),
    expire,
  };
}

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
  // Entries store their index in this array, so that removing one needs no search.
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
    // The loop runs backwards, because the last entry, which was already checked, replaces an expired entry.
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
