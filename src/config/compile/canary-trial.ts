/**
 * The trial of a canary: what its requests came to in the current window, and the one decision to withdraw it. With several
 * threads all count in the same memory, so that the decision is one for all of them; a lock that is held for some additions
 * guards it, and the main thread opens it if its holder died.
 */
import type { SharedMemory } from "../../base/shared-memory.ts";

/** 8 bytes each. */
const START_MS = 0;
const REQUESTS = 1;
const FAILED = 2;
const SLOW = 3;
/** 0 while it is active. What was counted when it was withdrawn follows. */
const WITHDRAWN_AT = 4;
const AT_REQUESTS = 5;
const AT_FAILED = 6;
const AT_SLOW = 7;
const NUMBERS = 8;
const BYTES = NUMBERS * 8 + 8;

const UNLOCKED = 0;
const SPINS_BEFORE_NAP = 2_000;
const NAP_MS = 1;

export interface TrialCounts {
  readonly requests: number;
  readonly failed: number;
  readonly slow: number;
}

export interface Withdrawal extends TrialCounts {
  /** Milliseconds since 1970. */
  readonly at: number;
}

export interface TrialTimes {
  readonly nowMs: number;
  readonly wallMs: number;
  readonly windowMs: number;
}

export class CanaryTrial {
  readonly #numbers: Float64Array;
  readonly #lock: Int32Array | undefined;
  readonly #thread: number;

  /** `name` must be another one for another definition. */
  constructor(name: string, nowMs: number, shared?: SharedMemory) {
    this.#thread = shared?.thread ?? 0;
    const memory = shared?.claim(name, BYTES) ?? { buffer: new ArrayBuffer(BYTES), isNew: true };
    this.#numbers = new Float64Array(memory.buffer, 0, NUMBERS);
    if (memory.isNew) this.#numbers[START_MS] = nowMs;
    if (shared === undefined) return;
    const lock = new Int32Array(memory.buffer, NUMBERS * 8, 1);
    this.#lock = lock;
    shared.onDeath(name, (thread) => void Atomics.compareExchange(lock, 0, thread, UNLOCKED));
  }

  get counts(): TrialCounts {
    const numbers = this.#numbers;
    return {
      requests: numbers[REQUESTS] as number,
      failed: numbers[FAILED] as number,
      slow: numbers[SLOW] as number,
    };
  }

  get isWithdrawn(): boolean {
    return this.#numbers[WITHDRAWN_AT] !== 0;
  }

  get withdrawal(): Withdrawal | undefined {
    const numbers = this.#numbers;
    const at = numbers[WITHDRAWN_AT] as number;
    if (at === 0) return undefined;
    const [requests, failed, slow] = [AT_REQUESTS, AT_FAILED, AT_SLOW].map((index) => numbers[index] as number);
    return { at, requests: requests ?? 0, failed: failed ?? 0, slow: slow ?? 0 };
  }

  /** One request came to its end. True if it is the one after which `isBad` withdraws the canary: once for all threads. */
  count(
    result: { readonly hasFailed: boolean; readonly isSlow: boolean },
    { nowMs, wallMs, windowMs }: TrialTimes,
    isBad: (counts: TrialCounts) => boolean,
  ): boolean {
    this.#acquire();
    try {
      const numbers = this.#numbers;
      if (nowMs - (numbers[START_MS] as number) >= windowMs) numbers.fill(0, REQUESTS, WITHDRAWN_AT)[START_MS] = nowMs;
      numbers[REQUESTS] = (numbers[REQUESTS] as number) + 1;
      if (result.hasFailed) numbers[FAILED] = (numbers[FAILED] as number) + 1;
      if (result.isSlow) numbers[SLOW] = (numbers[SLOW] as number) + 1;
      const { counts } = this;
      if (this.isWithdrawn || !isBad(counts)) return false;
      numbers[AT_REQUESTS] = counts.requests;
      numbers[AT_FAILED] = counts.failed;
      numbers[AT_SLOW] = counts.slow;
      numbers[WITHDRAWN_AT] = wallMs;
      return true;
    } finally {
      if (this.#lock) Atomics.store(this.#lock, 0, UNLOCKED);
    }
  }

  #acquire(): void {
    const lock = this.#lock;
    if (lock === undefined) return;
    for (let spins = 0; ; spins++) {
      const holder = Atomics.compareExchange(lock, 0, UNLOCKED, this.#thread);
      if (holder === UNLOCKED) return;
      if (spins >= SPINS_BEFORE_NAP) Atomics.wait(lock, 0, holder, NAP_MS);
    }
  }
}
