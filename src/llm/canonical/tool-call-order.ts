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
  hasInput: boolean;
  isStarted: boolean;
  isOver: boolean;
}

export class ToolCallSequencer {
  readonly #out: OrderedCalls;
  readonly #queue: QueuedCall[] = [];

  constructor(out: OrderedCalls) {
    this.#out = out;
  }

  get isOpen(): boolean {
    return this.#queue.length > 0;
  }

  start(call: OrderedCall): void {
    // Some providers do not mark the end of a call, so a new call ends the calls before it whose JSON is complete.
    this.#queue.push({
      ...call,
      balance: new BracketBalance(),
      held: [],
      hasInput: false,
      isStarted: false,
      isOver: false,
    });
    this.#advance();
  }

  input(call: number, json: string): void {
    const queued = this.#queue.find((queued) => queued.call === call);
    if (queued === undefined || json === "") return;
    queued.hasInput = true;
    queued.balance.push(json);
    if (queued.isStarted) this.#out.input(json);
    else queued.held.push(json);
    if (this.#queue.length > 1) this.#advance();
  }

  end(call: number): void {
    const queued = this.#queue.find((queued) => queued.call === call);
    if (queued) queued.isOver = true;
    this.#advance();
  }

  flush(): void {
    for (const queued of this.#queue) queued.isOver = true;
    this.#advance();
  }

  #advance(): void {
    for (let first = this.#queue[0]; first !== undefined; first = this.#queue[0]) {
      if (!first.isStarted) {
        first.isStarted = true;
        this.#out.start(first);
        for (const json of first.held) this.#out.input(json);
        first.held.length = 0;
      }
      const isComplete = first.isOver || (this.#queue.length > 1 && first.balance.isComplete);
      if (!isComplete) return;
      if (!first.hasInput) this.#out.input("{}");
      this.#queue.shift();
      this.#out.end();
    }
  }
}
