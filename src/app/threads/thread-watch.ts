/**
 * Notices worker threads whose event loop does not run. Each thread counts in shared memory while its event loop runs,
 * and the main thread compares the counts.
 */
import type { Clock, Timer } from "../../base/clock.ts";

const BEAT_MS = 1_000;
/** After this time without a heartbeat, a thread is reported and not asked for admin responses. */
const SLOW_MS = 5_000;
/** After this time without a heartbeat, a thread is terminated and replaced. */
const HUNG_MS = 30_000;
/** If the main thread's own check is later than this, the whole process was paused, and the check does not count. */
const LATE_MS = 2 * BEAT_MS;

export const HEARTBEAT_BYTES = 4;

export function startHeartbeat(clock: Clock, heartbeat: SharedArrayBuffer): Timer {
  const count = new Int32Array(heartbeat);
  const beat = (): void => void Atomics.add(count, 0, 1);
  beat();
  return clock.every(BEAT_MS, beat);
}

export interface WatchEvents {
  slow(seconds: number): void;
  responsive(): void;
  /** Called once. */
  hung(seconds: number): void;
}

export interface WatchedThread {
  readonly isSlow: boolean;
  stop(): void;
}

export interface ThreadWatch {
  /** A thread is watched from its first heartbeat on. */
  watch(heartbeat: SharedArrayBuffer, events: WatchEvents): WatchedThread;
}

export function createThreadWatch(clock: Clock): ThreadWatch {
  const watched = new Set<Watched>();
  let timer: Timer | undefined;
  let checkedMs = 0;

  function check(): void {
    const nowMs = clock.monotonicMs();
    const isLate = nowMs - checkedMs > LATE_MS;
    checkedMs = nowMs;
    if (!isLate) for (const thread of [...watched]) thread.check();
  }

  return {
    watch(heartbeat, events) {
      const thread = new Watched(new Int32Array(heartbeat), events, () => {
        watched.delete(thread);
        if (watched.size > 0) return;
        timer?.cancel();
        timer = undefined;
      });
      watched.add(thread);
      if (timer === undefined) {
        checkedMs = clock.monotonicMs();
        timer = clock.every(BEAT_MS, check);
      }
      return thread;
    },
  };
}

class Watched implements WatchedThread {
  readonly stop: () => void;
  readonly #count: Int32Array;
  readonly #events: WatchEvents;
  #last = 0;
  /** The number of checks since the last heartbeat. */
  #missed = 0;

  constructor(count: Int32Array, events: WatchEvents, stop: () => void) {
    this.#count = count;
    this.#events = events;
    this.stop = stop;
  }

  get isSlow(): boolean {
    return this.#missed * BEAT_MS >= SLOW_MS;
  }

  check(): void {
    const count = Atomics.load(this.#count, 0);
    if (count !== this.#last) {
      const wasSlow = this.isSlow;
      this.#last = count;
      this.#missed = 0;
      if (wasSlow) this.#events.responsive();
      return;
    }
    if (count === 0) return;
    this.#missed += 1;
    const ms = this.#missed * BEAT_MS;
    if (ms === SLOW_MS) this.#events.slow(ms / 1000);
    if (ms === HUNG_MS) this.#events.hung(ms / 1000);
  }
}
