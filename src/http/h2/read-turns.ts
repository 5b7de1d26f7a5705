/**
 * Lets HTTP/2 connections with many requests or small frames take turns. Node reads up to 2 MB of a socket at once, and
 * handles all frames before it returns to the event loop, so that one connection would delay all others. A read that has
 * begun (64 KiB) cannot be interrupted, but no further one follows in the same iteration, and requests that a read
 * contains beyond one turn wait for the next.
 */
import type { Socket } from "node:net";

/** Beginning a request takes about as long as this many small frames. */
export const REQUEST_COST = 32;
/** A connection that has cost more since its last turn waits for its next turn. */
const TURN_COST = 64 * REQUEST_COST;
/** So many connections have their turn in one iteration of the event loop. */
const TURNS_PER_ITERATION = 2;

/** Starts and stops the reads of a socket that an HTTP/2 session has taken over. */
interface SessionReads {
  start(): void;
  stop(): void;
}

/** The queue of connections that wait for their turn. */
export class ReadTurns {
  readonly #schedule: (action: () => void) => void;
  readonly #next = (): void => this.#continue();
  readonly #waiting = new Set<ReadTurn>();
  #isScheduled = false;

  /** `schedule` calls back in the next iteration of the event loop. */
  constructor(schedule: (action: () => void) => void = setImmediate) {
    this.#schedule = schedule;
  }

  wait(turn: ReadTurn): void {
    this.#waiting.add(turn);
    this.#continueLater();
  }

  leave(turn: ReadTurn): void {
    this.#waiting.delete(turn);
  }

  #continueLater(): void {
    if (this.#isScheduled || this.#waiting.size === 0) return;
    this.#isScheduled = true;
    this.#schedule(this.#next);
  }

  #continue(): void {
    this.#isScheduled = false;
    let left = TURNS_PER_ITERATION;
    for (const turn of this.#waiting) {
      if (left-- === 0) break;
      this.#waiting.delete(turn);
      turn.begin();
    }
    this.#continueLater();
  }
}

/** All connections of this thread share one event loop. */
const readTurns = new ReadTurns();

export class ReadTurn {
  readonly #reads: SessionReads;
  readonly #turns: ReadTurns;
  #cost = 0;
  #isWaiting = false;
  #isStopped = false;

  constructor(reads: SessionReads, turns: ReadTurns = readTurns) {
    this.#reads = reads;
    this.#turns = turns;
  }

  /** While true, work that can wait must wait for `SessionReads.start`. */
  get isOver(): boolean {
    return this.#isWaiting || this.#isStopped;
  }

  /** Called for each frame that is handled. Reading stops until the next turn if the frames have cost too much. */
  spend(cost: number): void {
    this.#cost += cost;
    if (this.#cost <= TURN_COST || this.#isWaiting || this.#isStopped) return;
    this.#isWaiting = true;
    this.#reads.stop();
    this.#turns.wait(this);
  }

  begin(): void {
    this.#cost = 0;
    this.#isWaiting = false;
    if (!this.#isStopped) this.#reads.start();
  }

  /** Reads nothing from now on. */
  stop(): void {
    this.#isStopped = true;
    this.#turns.leave(this);
    this.#reads.stop();
  }
}

interface Handle {
  readonly writeQueueSize?: number;
  readStart?: () => unknown;
  readStop?: () => unknown;
}

/** Node's `pause` and `resume` have no effect on a socket that a session has taken over. */
export function sessionReads(socket: Socket): SessionReads {
  return {
    start: () => {
      // While a write is incomplete, the session does not read, and starts on its own afterwards.
      if (unsentBytes(socket) === 0) handleOf(socket)?.readStart?.();
    },
    stop: () => void handleOf(socket)?.readStop?.(),
  };
}

/** Node's streams do not count the bytes that a session has handed over to the operating system's queue. */
export function unsentBytes(socket: Socket): number {
  return handleOf(socket)?.writeQueueSize ?? 0;
}

function handleOf(socket: Socket): Handle | null | undefined {
  return (socket as unknown as { readonly _handle?: Handle | null })._handle;
}
