/**
 * Passes a request body through a filter, one chunk at a time. Reading starts with the first reader.
 */
import { Readable } from "node:stream";
import { type BodyStream, followBody, type RequestBodyStream } from "./body.ts";

export interface ChunkFilter {
  data(chunk: Buffer): Promise<Buffer>;
  /** Returns the last bytes of the body. */
  end(): Promise<Buffer>;
}

export class FilteredRequestBody extends Readable implements RequestBodyStream {
  readonly #source: BodyStream;
  readonly #filter: ChunkFilter;
  readonly #waiting: Buffer[] = [];
  #stop: (() => void) | undefined;
  #isBusy = false;
  #hasEnded = false;

  constructor(source: BodyStream, filter: ChunkFilter) {
    super({ autoDestroy: true });
    this.#source = source;
    this.#filter = filter;
    // Without a listener, an error before the first reader would end the process.
    this.on("error", () => undefined);
  }

  override _read(): void {
    if (this.#stop !== undefined) {
      this.#continue();
      return;
    }
    this.#stop = followBody(this.#source, {
      data: (chunk) => {
        this.#waiting.push(chunk);
        this.#source.pause();
        this.#continue();
      },
      end: () => {
        this.#hasEnded = true;
        this.#continue();
      },
      failed: (error) => void this.destroy(error),
    });
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#stop?.();
    done(error);
  }

  queued(bytes: number): void {
    this.#source.queued?.(bytes);
  }

  peek(seen: (first: Buffer | undefined) => void): void {
    const look = (): void => {
      const first = this.read() as Buffer | null;
      if (first === null && !this.readableEnded && !this.destroyed) {
        this.once("readable", look);
        return;
      }
      this.off("end", look);
      if (first !== null) this.unshift(first);
      seen(first ?? undefined);
    };
    this.once("readable", look);
    this.once("end", look);
  }

  #continue(): void {
    if (this.#isBusy || this.destroyed) return;
    const chunk = this.#waiting.shift();
    if (chunk === undefined && !this.#hasEnded) {
      this.#source.resume();
      return;
    }
    this.#isBusy = true;
    const result = chunk === undefined ? this.#filter.end() : this.#filter.data(chunk);
    result.then(
      (bytes) => {
        this.#isBusy = false;
        if (this.destroyed) return;
        const mayContinue = bytes.length === 0 || this.push(bytes);
        if (chunk === undefined) this.push(null);
        else if (mayContinue) this.#continue();
      },
      (error: Error) => void this.destroy(error),
    );
  }
}
