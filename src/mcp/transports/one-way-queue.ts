/**
 * Limits the POSTs of messages without a response, such as the answers to a server's requests, per channel and per
 * server. Messages above the limit wait in order, and channels of one server take turns.
 */
import { type ServerMessages, SMALL_MESSAGE_BYTES } from "../../base/memory-budget.ts";
import type { Outgoing } from "./transport.ts";

const MAX_SENDING = 16;
const MAX_SENDING_TO_SERVER = 128;
/** A server may have this many open requests on a connection, so their answers always fit. */
const MAX_WAITING = 1_000;
const MAX_CHARS = 4 * 1024 * 1024;
const MAX_WAITING_FOR_SERVER = 4_096;
const MAX_CHARS_FOR_SERVER = 32 * 1024 * 1024;
/** A channel may hold this many messages even if other channels reach the limits of the server. */
const MIN_MESSAGES = 4;

/** Counts the messages to one server, in sum over its channels. */
export class OneWayLimits {
  messages = 0;
  chars = 0;
  sending = 0;
  readonly #waiting = new Set<OneWayQueue>();

  wait(queue: OneWayQueue): void {
    this.#waiting.add(queue);
  }

  leave(queue: OneWayQueue): void {
    this.#waiting.delete(queue);
  }

  /** Sends one message of each waiting channel in turn. */
  advance(): void {
    while (this.sending < MAX_SENDING_TO_SERVER) {
      const [next] = this.#waiting;
      if (next === undefined) return;
      this.#waiting.delete(next);
      next.startNext();
    }
  }
}

/** A message in the queue or on its way. The queue is finished with it once `release` was called. */
export interface OneWayMessage {
  readonly message: Outgoing;
  isSending: boolean;
  isReleased: boolean;
  freeMemory: (() => void) | undefined;
}

export class OneWayQueue {
  readonly #limits: OneWayLimits;
  readonly #memory: ServerMessages;
  readonly #start: (queued: OneWayMessage) => void;
  /** Sent messages are removed at once, and their places from time to time. */
  readonly #waiting: (OneWayMessage | undefined)[] = [];
  #next = 0;
  #messages = 0;
  #chars = 0;
  #sending = 0;
  #isClosed = false;

  /** `start` sends a message now, and must call `release` when its POST is over. */
  constructor(limits: OneWayLimits, memory: ServerMessages, start: (queued: OneWayMessage) => void) {
    this.#limits = limits;
    this.#memory = memory;
    this.#start = start;
  }

  get isEmpty(): boolean {
    return this.#messages === 0;
  }

  /** Sends the message now or later. Returns false if it does not fit, and is dropped. */
  send(message: Outgoing): boolean {
    const limits = this.#limits;
    const chars = message.text.length;
    if (this.#isClosed || !this.#fits(chars)) return false;
    const freeMemory = chars > SMALL_MESSAGE_BYTES ? this.#memory.hold(chars) : undefined;
    if (chars > SMALL_MESSAGE_BYTES && freeMemory === undefined) return false;
    this.#messages += 1;
    this.#chars += chars;
    limits.messages += 1;
    limits.chars += chars;
    this.#waiting.push({ message, isSending: false, isReleased: false, freeMemory });
    this.#advance();
    return true;
  }

  release(queued: OneWayMessage): void {
    if (queued.isReleased) return;
    queued.isReleased = true;
    queued.freeMemory?.();
    const chars = queued.message.text.length;
    this.#messages -= 1;
    this.#chars -= chars;
    this.#limits.messages -= 1;
    this.#limits.chars -= chars;
    if (!queued.isSending) return;
    this.#sending -= 1;
    this.#limits.sending -= 1;
    this.#advance();
    this.#limits.advance();
  }

  startNext(): void {
    const queued = this.#waiting[this.#next];
    if (queued === undefined || this.#isClosed) return;
    this.#waiting[this.#next] = undefined;
    this.#next += 1;
    if (this.#next === this.#waiting.length || this.#next >= MAX_WAITING) {
      this.#waiting.splice(0, this.#next);
      this.#next = 0;
    }
    queued.isSending = true;
    this.#sending += 1;
    this.#limits.sending += 1;
    this.#start(queued);
    this.#waitForTurn();
  }

  /** Drops the messages that wait. Those on their way are released by their sender. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#limits.leave(this);
    const waiting = this.#waiting.splice(0).slice(this.#next);
    this.#next = 0;
    for (const queued of waiting) if (queued !== undefined) this.release(queued);
  }

  #advance(): void {
    this.#waitForTurn();
    this.#limits.advance();
  }

  #waitForTurn(): void {
    const hasNext = this.#next < this.#waiting.length;
    if (!this.#isClosed && hasNext && this.#sending < MAX_SENDING) this.#limits.wait(this);
    else this.#limits.leave(this);
  }

  #fits(chars: number): boolean {
    if (this.#messages === 0) return true;
    if (this.#messages >= MAX_SENDING + MAX_WAITING || this.#chars + chars > MAX_CHARS) return false;
    const { messages, chars: sum } = this.#limits;
    const fitsServer = messages < MAX_WAITING_FOR_SERVER && sum + chars <= MAX_CHARS_FOR_SERVER;
    return fitsServer || this.#messages < MIN_MESSAGES;
  }
}
