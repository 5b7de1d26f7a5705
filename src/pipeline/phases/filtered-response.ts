/**
 * Passes the body of a response through filters, one chunk at a time.
 */
import type { BodyFilter } from "../../core/exchange.ts";

export interface FilteredOutput {
  /** Returns false if the client must read first. */
  write(chunk: Buffer): boolean;
  end(last: Buffer | undefined): void;
  /** Lets the backend send more. */
  resume(): void;
  fail(error: unknown): void;
}

export class FilteredResponse {
  readonly #filters: readonly BodyFilter[];
  readonly #output: FilteredOutput;
  readonly #waiting: Buffer[] = [];
  #isBusy = false;
  #hasEnded = false;
  #isOver = false;

  constructor(filters: readonly BodyFilter[], output: FilteredOutput) {
    this.#filters = filters;
    this.#output = output;
  }

  /** Always returns false: the backend sends more when the chunk has been processed. */
  data(chunk: Buffer): false {
    this.#waiting.push(chunk);
    this.#continue();
    return false;
  }

  end(): void {
    this.#hasEnded = true;
    this.#continue();
  }

  /** Discards the results of pending work. */
  stop(): void {
    this.#isOver = true;
  }

  #continue(): void {
    if (this.#isBusy || this.#isOver) return;
    const chunk = this.#waiting.shift();
    if (chunk === undefined && !this.#hasEnded) return;
    this.#isBusy = true;
    this.#process(chunk).then(
      (bytes) => this.#processed(chunk === undefined, bytes),
      (error: unknown) => {
        if (this.#isOver) return;
        this.#isOver = true;
        this.#output.fail(error);
      },
    );
  }

  #processed(isLast: boolean, bytes: Buffer): void {
    this.#isBusy = false;
    if (this.#isOver) return;
    try {
      if (isLast) {
        this.#isOver = true;
        this.#output.end(bytes.length === 0 ? undefined : bytes);
        return;
      }
      const mayContinue = bytes.length === 0 || this.#output.write(bytes);
      if (mayContinue && this.#waiting.length === 0 && !this.#hasEnded) this.#output.resume();
      this.#continue();
    } catch (error) {
      this.#isOver = true;
      this.#output.fail(error);
    }
  }

  async #process(chunk: Buffer | undefined): Promise<Buffer> {
    let bytes = chunk ?? EMPTY;
    for (const filter of this.#filters) {
      const filtered = bytes.length === 0 ? EMPTY : await filter.data(bytes);
      // The last bytes of a filter pass the filters after it.
      bytes = chunk === undefined ? Buffer.concat([filtered, await filter.end()]) : filtered;
    }
    return bytes;
  }
}

const EMPTY = Buffer.alloc(0);
