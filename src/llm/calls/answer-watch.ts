/**
 * The time limits of one target: until the first byte of its answer, and between two pieces of it. A client that reads
 * slowly is not the target's silence. One timer at most; each piece costs a look at the clock.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import type { TargetTimeouts } from "../models/target.ts";

export class AnswerWatch {
  readonly #clock: Clock;
  readonly #timeouts: TargetTimeouts;
  readonly #expired: (detail: string) => void;
  #timer: Timer | undefined;
  #heardMs = 0;
  #isIdling = false;
  #isPaused = false;
  #isOver = false;

  constructor(clock: Clock, timeouts: TargetTimeouts, expired: (detail: string) => void) {
    this.#clock = clock;
    this.#timeouts = timeouts;
    this.#expired = expired;
    const { firstByteMs } = timeouts;
    if (firstByteMs !== undefined) this.#arm(firstByteMs, () => this.#expire(`no first byte within ${firstByteMs} ms`));
  }

  /** Something of the answer came. `goesOn`: the client can take more. */
  heard(goesOn: boolean): void {
    if (this.#isOver) return;
    this.#isPaused = !goesOn;
    this.#heardMs = this.#clock.monotonicMs();
    if (this.#isIdling) return;
    this.#isIdling = true;
    this.#timer?.cancel();
    const { idleMs } = this.#timeouts;
    if (idleMs !== undefined) this.#arm(idleMs, () => this.#look(idleMs));
  }

  resumed(): void {
    if (this.#isPaused) this.heard(true);
  }

  stop(): void {
    this.#isOver = true;
    this.#timer?.cancel();
  }

  #look(idleMs: number): void {
    const silentMs = this.#isPaused ? 0 : this.#clock.monotonicMs() - this.#heardMs;
    if (silentMs >= idleMs) this.#expire(`no byte for ${idleMs} ms`);
    else this.#arm(idleMs - silentMs, () => this.#look(idleMs));
  }

  #arm(delayMs: number, callback: () => void): void {
    this.#timer = this.#clock.after(delayMs, () => {
      if (!this.#isOver) callback();
    });
  }

  #expire(detail: string): void {
    this.stop();
    this.#expired(detail);
  }
}
