/**
 * Admission of children: how many may live, and how many may be starting at one time. Starting a process costs
 * far more than running it, so a burst of sessions waits in line here, first come, first served, instead of fighting for
 * the CPU.
 */
import type { Clock, Timer } from "../../lib/process/clock.ts";

/** SDKs give up after a minute. */
const MAX_WAIT_MS = 60_000;
/** A longer line would not be served in that time. */
const MAX_LINE = 1_000;

export interface GateLimits {
  readonly maxChildren: number;
  readonly maxConcurrentStarts: number;
}

export interface Slot {
  /** The child is ready, or will never be: the next one may start. */
  started(): void;
  /** The process is gone. */
  released(): void;
}

interface Waiting {
  start(slot: Slot): void;
  refuse(reason: string): void;
  timer: Timer;
  /** Somebody was ended so that it can start: it is not refused meanwhile. */
  hasPromise: boolean;
}

export class StartGate {
  limits: GateLimits;
  readonly #clock: Clock;
  readonly #makeRoom: () => boolean;
  readonly #waiting: Waiting[] = [];
  #living = 0;
  #starting = 0;

  /** `makeRoom` ends an idle session; false if there is none. */
  constructor(limits: GateLimits, clock: Clock, makeRoom: () => boolean) {
    this.limits = limits;
    this.#clock = clock;
    this.#makeRoom = makeRoom;
  }

  get living(): number {
    return this.#living;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Calls `start` now or as soon as there is room, or `refuse` if there will be none. Returns how to leave the line. */
  enter(start: (slot: Slot) => void, refuse: (reason: string) => void): () => void {
    if (this.#hasRoom()) {
      start(this.#take());
      return () => undefined;
    }
    const isFull = this.#isFull();
    if (isFull && !this.#makeRoom()) {
      refuse(this.#full());
      return () => undefined;
    }
    if (this.#waiting.length >= MAX_LINE) {
      refuse("too many child processes wait to be started");
      return () => undefined;
    }
    const waiting: Waiting = {
      start,
      refuse,
      timer: this.#clock.after(MAX_WAIT_MS, () => {
        leave();
        refuse("too many child processes are starting");
      }),
      hasPromise: isFull,
    };
    const leave = (): void => {
      waiting.timer.cancel();
      const at = this.#waiting.indexOf(waiting);
      if (at >= 0) this.#waiting.splice(at, 1);
    };
    this.#waiting.push(waiting);
    return leave;
  }

  /** A place for a child that nobody waits for: only where there is room, and nobody in line. */
  spare(): Slot | undefined {
    return this.#waiting.length === 0 && this.#hasRoom() ? this.#take() : undefined;
  }

  #isFull(): boolean {
    return this.#living >= this.limits.maxChildren;
  }

  #full(): string {
    return `the limit of ${this.limits.maxChildren} child processes is reached`;
  }

  #hasRoom(): boolean {
    return !this.#isFull() && this.#starting < this.limits.maxConcurrentStarts;
  }

  #take(): Slot {
    this.#living += 1;
    this.#starting += 1;
    let isStarting = true;
    let isLiving = true;
    const started = (): void => {
      if (!isStarting) return;
      isStarting = false;
      this.#starting -= 1;
      this.#next();
    };
    return {
      started,
      released: () => {
        if (!isLiving) return;
        isLiving = false;
        this.#living -= 1;
        started();
        this.#next();
      },
    };
  }

  #next(): void {
    while (this.#hasRoom()) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      next.timer.cancel();
      next.start(this.#take());
    }
    if (this.#isFull()) this.#answerLine();
  }

  /** The last place was taken while others wait for it: they fare as who comes now does, instead of waiting in vain. */
  #answerLine(): void {
    for (const one of [...this.#waiting]) {
      if (one.hasPromise) continue;
      if (this.#makeRoom()) {
        one.hasPromise = true;
        continue;
      }
      const at = this.#waiting.indexOf(one);
      if (at < 0) continue;
      this.#waiting.splice(at, 1);
      one.timer.cancel();
      one.refuse(this.#full());
    }
  }
}
