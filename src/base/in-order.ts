/**
 * Work on what arrives on one connection, in the order of its arrival: small pieces are done at once, a large one in
 * turns with everybody else's, and what comes meanwhile waits behind it.
 */
import { contain } from "./errors.ts";
import { finish, inTurns, type Steps } from "./turns.ts";

export interface InOrderEvents {
  /** Something waits: better read no more until `idle`. */
  busy(): void;
  idle(): void;
  /** Called back code failed: what it was about is not known here. */
  failed(): void;
  /** Nobody wants the rest. */
  isOver(): boolean;
}

export class InOrder {
  readonly #events: InOrderEvents;
  readonly #waiting: (() => void)[] = [];
  #isBusy = false;

  constructor(events: InOrderEvents) {
    this.#events = events;
  }

  get isBusy(): boolean {
    return this.#isBusy;
  }

  /** `done` gets the result, at once if the work is small and nothing waits. */
  run<T>(steps: Steps<T>, isSmall: boolean, done: (result: T) => void): void {
    if (this.#isBusy) this.#waiting.push(() => this.#start(steps, isSmall, done));
    else this.#start(steps, isSmall, done);
  }

  /** After everything that came before. */
  afterwards(last: () => void): void {
    if (this.#isBusy) this.#waiting.push(last);
    else last();
  }

  #start<T>(steps: Steps<T>, isSmall: boolean, done: (result: T) => void): void {
    if (isSmall) {
      done(finish(steps));
      return;
    }
    const isFirst = !this.#isBusy;
    this.#isBusy = true;
    if (isFirst) this.#events.busy();
    const { isOver, failed } = this.#events;
    inTurns(steps, isOver).then(
      (result) =>
        contain(() => {
          done(result);
          this.#goOn();
        }, failed),
      failed,
    );
  }

  #goOn(): void {
    this.#isBusy = false;
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
      // What it starts may be large again: then the others go on waiting.
      next();
      if (this.#isBusy) return;
    }
    this.#events.idle();
  }
}
