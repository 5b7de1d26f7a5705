/**
 * Keeps turns of the loop short and accepts waiting connections in time, however much other sockets send. libuv accepts
 * one connection in each turn, in the order in which they came, and reads a socket up to 32 times in a turn while each
 * read fills the buffer. With turns of 20 ms, 300 connections of one client would delay the next client by 6 s.
 * Therefore:
 *
 * - After 32 reads that filled the buffer in one turn, each socket is read at most once more in that turn.
 * - When a long turn has accepted a connection, sockets are not read again until the backlog is empty or 20 ms have
 *   passed. The turns in between are short and accept one connection each.
 */
import { type Clock, systemClock } from "../../base/clock.ts";

const FULL_READS_PER_TURN = 32;
/** Shorter turns accept a full backlog fast enough without intervention. */
const LONG_TURN_MS = 4;
/** About as long as a turn with hundreds of busy sockets, so that these get half of the time. */
const ACCEPT_MS = 20;

/** The part of a socket that is used here. */
export interface ReadSocket {
  readonly destroyed: boolean;
  isPaused(): boolean;
  resume(): unknown;
}

export class FairReads {
  readonly #clock: Clock;
  readonly #schedule: (action: () => void) => void;
  readonly #endTurn = (): void => this.#turnEnded();
  readonly #sockets = new Set<ReadSocket>();
  #held: (() => void)[] = [];
  #fullReads = 0;
  #isWatching = false;
  #hasAccepted = false;
  #turnStartMs = Number.POSITIVE_INFINITY;
  #acceptsFirst = false;
  /** Undefined in the first turn, in which each busy socket is read once more. */
  #acceptUntilMs: number | undefined = undefined;

  /** `schedule` calls back at the end of the turn, or of the next one if it is called there. */
  constructor(clock: Clock, schedule: (action: () => void) => void = setImmediate) {
    this.#clock = clock;
    this.#schedule = schedule;
  }

  /** Whether sockets that were read must wait. */
  get isHolding(): boolean {
    return this.#acceptsFirst || this.#fullReads > FULL_READS_PER_TURN;
  }

  /** A listener accepted a connection in this turn. */
  accepted(): void {
    this.#hasAccepted = true;
    this.#watch();
  }

  /** Called after a read. False: the caller stops reading. The socket is resumed later, unless its owner paused it. */
  mayReadOn(socket: ReadSocket, isFullRead: boolean): boolean {
    if (isFullRead) {
      this.#fullReads += 1;
      this.#watch();
    }
    if (!this.isHolding || socket.destroyed || socket.isPaused()) return true;
    this.#sockets.add(socket);
    return false;
  }

  /** Runs an action that makes a socket be read again: now, or when sockets need not wait. */
  run(action: () => void): void {
    if (this.isHolding) this.#held.push(action);
    else action();
  }

  /** Runs the action in another turn in which sockets need not wait. */
  runLater(action: () => void): void {
    this.run(() => this.#schedule(action));
  }

  #watch(): void {
    if (this.#isWatching) return;
    this.#isWatching = true;
    this.#schedule(this.#endTurn);
  }

  #turnEnded(): void {
    const nowMs = this.#clock.monotonicMs();
    const isLong = nowMs - this.#turnStartMs >= LONG_TURN_MS;
    this.#fullReads = 0;
    if (!this.#hasAccepted) this.#acceptsFirst = false;
    else if (!this.#acceptsFirst) this.#acceptsFirst = isLong;
    else if (this.#acceptUntilMs === undefined) this.#acceptUntilMs = nowMs + ACCEPT_MS;
    else if (nowMs >= this.#acceptUntilMs) this.#acceptsFirst = false;
    this.#isWatching = this.#hasAccepted;
    this.#turnStartMs = this.#hasAccepted ? nowMs : Number.POSITIVE_INFINITY;
    this.#hasAccepted = false;
    if (this.#isWatching) this.#schedule(this.#endTurn);
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

/** Shared by all listeners and sockets of this thread, because they share one event loop. */
export const fairReads = new FairReads(systemClock);
