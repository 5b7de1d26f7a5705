/**
 * How long a lost connection rests before it is opened again: longer after each loss, short again after one that
 * held. A server that fails at every start must not keep the gateway busy.
 */

const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 10_000;
/** A connection that held this long was sound: the next loss counts as the first again. */
const SOUND_MS = 30_000;

export class ReconnectPauses {
  /** Attempts in a row that did not come about. */
  failedStarts = 0;
  #losses = 0;
  #upSinceMs = 0;
  #retryAtMs = 0;

  /** Of the pause before the next attempt; 0 or less when it may be made. */
  leftMs(nowMs: number): number {
    return this.#losses > 0 ? this.#retryAtMs - nowMs : 0;
  }

  up(nowMs: number): void {
    this.failedStarts = 0;
    this.#upSinceMs = nowMs;
  }

  lost(nowMs: number, wasUp: boolean): void {
    this.#losses = wasUp && nowMs - this.#upSinceMs > SOUND_MS ? 1 : this.#losses + 1;
    if (!wasUp) this.failedStarts += 1;
    this.#retryAtMs = nowMs + Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#losses - 1));
  }

  /** It was let go on purpose. */
  reset(): void {
    this.#losses = 0;
  }
}
