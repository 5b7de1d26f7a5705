/**
 * Processes messages in the order of their arrival. Large work runs in slices (`sliced-work.ts`), and later messages
 * wait for it.
 */
import { contain } from "./errors.ts";
import { finish, runInSlices, type Steps } from "./sliced-work.ts";

export interface InOrderEvents {
  /** Called when large work starts. The caller should stop reading until `idle`. */
  busy(): void;
  idle(): void;
  /** Called if sliced work, or a callback after it, threw. */
  failed(): void;
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

  /** `done` receives the result, immediately if the work is small and no large work is running. */
  run<T>(steps: Steps<T>, isSmall: boolean, done: (result: T) => void): void {
    if (this.#isBusy) this.#waiting.push(() => this.#start(steps, isSmall, done));
    else this.#start(steps, isSmall, done);
  }

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
    runInSlices(steps, isOver).then(
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
      // The callback may have started large work, which keeps the others queued.
      next();
      if (this.#isBusy) return;
    }
    this.#events.idle();
  }
}
