/**
 * Passes the body of a response through filters. Each filter gets one chunk at a time.
 */
import type { BodyFilter } from "../../core/exchange.ts";

interface FilteredOutput {
  /** Returns false if the client must read first. */
  write(chunk: Buffer): boolean;
  end(last: Buffer | undefined): void;
  /** Lets the backend send more. */
  resume(): void;
  fail(error: unknown): void;
}

export class FilteredResponse {
  readonly #output: FilteredOutput;
  readonly #stages: Stage[] = [];
  readonly #first: Target;
  #mayWrite = true;
  #hasEnded = false;
  #isOver = false;

  constructor(filters: readonly BodyFilter[], output: FilteredOutput) {
    this.#output = output;
    let next: Target = {
      data: (chunk) => {
        this.#mayWrite = output.write(chunk);
      },
      end: (last) => {
        this.#isOver = true;
        output.end(last.length === 0 ? undefined : last);
      },
    };
    for (const filter of filters.toReversed()) {
      next = new Stage(filter, next, this);
      this.#stages.push(next as Stage);
    }
    this.#first = next;
  }

  /** Always returns false: the backend sends more when the chunk has been processed. */
  data(chunk: Buffer): false {
    this.#first.data(chunk);
    return false;
  }

  end(): void {
    this.#hasEnded = true;
    this.#first.end(EMPTY);
  }

  /** The client reads again. */
  drained(): void {
    this.#mayWrite = true;
  }

  /** Discards the results of pending work. */
  stop(): void {
    this.#isOver = true;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  idle(): void {
    if (this.#hasEnded || this.#isOver || !this.#mayWrite) return;
    if (this.#stages.every(({ isIdle }) => isIdle)) this.#output.resume();
  }

  fail(error: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#output.fail(error);
  }
}

interface Target {
  data(chunk: Buffer): void;
  /** The last bytes of a filter pass the filters after it. */
  end(last: Buffer): void;
}

interface StageOwner {
  readonly isOver: boolean;
  /** Called when the stage has processed all of its chunks. */
  idle(): void;
  fail(error: unknown): void;
}

class Stage implements Target {
  readonly #filter: BodyFilter;
  readonly #next: Target;
  readonly #owner: StageOwner;
  readonly #waiting: Buffer[] = [];
  #isBusy = false;
  #hasEnded = false;

  constructor(filter: BodyFilter, next: Target, owner: StageOwner) {
    this.#filter = filter;
    this.#next = next;
    this.#owner = owner;
    filter.start?.((bytes) => {
      if (!owner.isOver) this.#guarded(() => next.data(bytes));
    });
  }

  get isIdle(): boolean {
    return !this.#isBusy && this.#waiting.length === 0;
  }

  data(chunk: Buffer): void {
    this.#waiting.push(chunk);
    this.#continue();
  }

  end(last: Buffer): void {
    if (last.length > 0) this.#waiting.push(last);
    this.#hasEnded = true;
    this.#continue();
  }

  #continue(): void {
    if (this.#isBusy || this.#owner.isOver) return;
    const chunk = this.#waiting.shift();
    if (chunk === undefined && !this.#hasEnded) {
      this.#owner.idle();
      return;
    }
    this.#isBusy = true;
    const result = chunk === undefined ? this.#filter.end() : this.#filter.data(chunk);
    result.then(
      (bytes) => {
        if (this.#owner.isOver) return;
        this.#guarded(() => {
          if (chunk === undefined) this.#next.end(bytes);
          else if (bytes.length > 0) this.#next.data(bytes);
        });
        if (chunk === undefined) return;
        this.#isBusy = false;
        this.#continue();
      },
      (error: unknown) => this.#owner.fail(error),
    );
  }

  #guarded(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#owner.fail(error);
    }
  }
}

const EMPTY = Buffer.alloc(0);
