/**
 * Limits socket reads per event-loop iteration, so that busy sockets do not delay new connections.
 */
import { type Clock, systemClock } from "../../base/clock.ts";

/** The buffer size that libuv suggests for a read. */
export const READ_BYTES = 64 * 1024;
const FULL_READS_PER_ITERATION = 32;
/** TLS delivers at most this much in one read. */
const LARGE_READ_BYTES = 16 * 1024;
/** What the receivers do with large reads may take this long in one iteration, besides the first and the last read. */
const LARGE_READS_MS = 5;
/** In shorter iterations, the backlog is accepted fast enough. */
const LONG_ITERATION_MS = 4;
/** Limits how long accepting takes precedence over reading. */
const ACCEPT_MS = 20;

export interface ReadSocket {
  readonly destroyed: boolean;
  isPaused(): boolean;
  resume(): unknown;
}

export class FairReads {
  readonly #clock: Clock;
  readonly #schedule: (action: () => void) => void;
  readonly #endIteration = (): void => this.#iterationEnded();
  readonly #sockets = new Set<ReadSocket>();
  #held: (() => void)[] = [];
  #fullReads = 0;
  #firstLargeReadMs: number | undefined = undefined;
  #hasReadLong = false;
  #isWatching = false;
  #hasAccepted = false;
  #iterationStartMs = Number.POSITIVE_INFINITY;
  #acceptsFirst = false;
  #acceptUntilMs: number | undefined = undefined;

  /** `schedule` calls back at the end of the current event-loop iteration, or of the next one if called at the end. */
  constructor(clock: Clock, schedule: (action: () => void) => void = setImmediate) {
    this.#clock = clock;
    this.#schedule = schedule;
  }

  get isHolding(): boolean {
    return this.#acceptsFirst || this.#hasReadLong || this.#fullReads > FULL_READS_PER_ITERATION;
  }

  accepted(): void {
    this.#hasAccepted = true;
    this.#watch();
  }

  /**
   * Called after the receiver of a read returned. Returns false if the caller must stop reading. The socket is resumed
   * later, unless its owner paused it.
   */
  mayReadOn(socket: ReadSocket, size: number): boolean {
    if (size >= LARGE_READ_BYTES) this.#countLarge(size);
    if (!this.isHolding || socket.destroyed || socket.isPaused()) return true;
    this.#sockets.add(socket);
    return false;
  }

  #countLarge(size: number): void {
    if (size === READ_BYTES) this.#fullReads += 1;
    const nowMs = this.#clock.monotonicMs();
    this.#firstLargeReadMs ??= nowMs;
    this.#hasReadLong = nowMs - this.#firstLargeReadMs >= LARGE_READS_MS;
    this.#watch();
  }

  /** Runs an action that resumes reading a socket, immediately or when reading may continue. */
  run(action: () => void): void {
    if (this.isHolding) this.#held.push(action);
    else action();
  }

  runLater(action: () => void): void {
    this.run(() => this.#schedule(action));
  }

  #watch(): void {
    if (this.#isWatching) return;
    this.#isWatching = true;
    this.#schedule(this.#endIteration);
  }

  #iterationEnded(): void {
    const nowMs = this.#clock.monotonicMs();
    const isLong = nowMs - this.#iterationStartMs >= LONG_ITERATION_MS;
    this.#fullReads = 0;
    this.#firstLargeReadMs = undefined;
    this.#hasReadLong = false;
    if (!this.#hasAccepted) this.#acceptsFirst = false;
    else if (!this.#acceptsFirst) this.#acceptsFirst = isLong;
    else if (this.#acceptUntilMs === undefined) this.#acceptUntilMs = nowMs + ACCEPT_MS;
    else if (nowMs >= this.#acceptUntilMs) this.#acceptsFirst = false;
    this.#isWatching = this.#hasAccepted;
    this.#iterationStartMs = this.#hasAccepted ? nowMs : Number.POSITIVE_INFINITY;
    this.#hasAccepted = false;
    if (this.#isWatching) this.#schedule(this.#endIteration);
    if (!this.#acceptsFirst) this.#release();
  }

  #release(): void {
    this.#acceptUntilMs = undefined;
    if (this.#sockets.size === 0 && this.#held.length === 0) return;
    const sockets = [...this.#sockets];
    const held = this.#held;
    this.#sockets.clear();
    this.#held = [];
    for (const socket of sockets) if (!socket.destroyed && !socket.isPaused()) socket.resume();
    for (const action of held) action();
  }
}

/** All listeners and sockets of this thread share one event loop. */
export const fairReads = new FairReads(systemClock);
