/**
 * Serializes tool calls for dialects that do not allow them to overlap. The first open call streams through. Later
 * calls are buffered until the call before them is complete.
 */
import { BracketBalance } from "../../json/json-text.ts";
import type { Signature } from "./conversation.ts";

export interface OrderedCall {
  readonly call: number;
  readonly id: string | undefined;
  readonly name: string;
  readonly signature: Signature | undefined;
}

/** The sequencer calls `start`, then `input` any number of times, then `end` before it starts the next call. */
export interface OrderedCalls {
  start(call: OrderedCall): void;
  input(json: string): void;
  end(): void;
}

interface QueuedCall extends OrderedCall {
  readonly balance: BracketBalance;
  readonly held: string[];
  heldChars: number;
  hasInput: boolean;
  isStarted: boolean;
  isOver: boolean;
}

export class ToolCallSequencer {
  readonly #out: OrderedCalls;
  /** The open calls by number, in the order in which they started. */
  readonly #queue = new Map<number, QueuedCall>();
  #heldChars = 0;

  constructor(out: OrderedCalls) {
    this.#out = out;
  }

  get isOpen(): boolean {
    return this.#queue.size > 0;
  }

  /** The length of the buffered input. */
  get heldChars(): number {
    return this.#heldChars;
  }

  start(call: OrderedCall): void {
    // Some providers do not mark the end of a call, so a new call ends the calls before it whose JSON is complete.
    this.#queue.set(call.call, {
      ...call,
      balance: new BracketBalance(),
      held: [],
      heldChars: 0,
      hasInput: false,
      isStarted: false,
      isOver: false,
    });
    this.#advance();
  }

  input(call: number, json: string): void {
    const queued = this.#queue.get(call);
    if (queued === undefined || json === "") return;
    queued.hasInput = true;
    queued.balance.push(json);
    if (queued.isStarted) this.#out.input(json);
    else {
      queued.held.push(json);
      queued.heldChars += json.length;
      this.#heldChars += json.length;
    }
    if (this.#queue.size > 1) this.#advance();
  }

  end(call: number): void {
    const queued = this.#queue.get(call);
    if (queued) queued.isOver = true;
    this.#advance();
  }

  flush(): void {
    for (const queued of this.#queue.values()) queued.isOver = true;
    this.#advance();
  }

  #advance(): void {
    for (const first of this.#queue.values()) {
      if (!first.isStarted) {
        first.isStarted = true;
        this.#heldChars -= first.heldChars;
        this.#out.start(first);
        for (const json of first.held) this.#out.input(json);
        first.held.length = 0;
      }
      const isComplete = first.isOver || (this.#queue.size > 1 && first.balance.isComplete);
      if (!isComplete) return;
      if (!first.hasInput) this.#out.input("{}");
      this.#queue.delete(first.call);
      this.#out.end();
    }
  }
}
