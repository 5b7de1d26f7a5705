/**
 * Passes a request body through a filter, one chunk at a time. Reading starts with the first reader.
 */
import { Readable } from "node:stream";
import { type BodyStream, followBody, type RequestBodyStream } from "./body.ts";

export interface ChunkFilter {
  /** Called once, before the other calls. Bytes that are passed to `emit` come before the results of later calls. */
  start?(emit: (bytes: Buffer) => void): void;
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
  /** True if the reader must read before more chunks are passed to the filter. */
  #isFull = false;
  #hasEnded = false;

  constructor(source: BodyStream, filter: ChunkFilter) {
    super({ autoDestroy: true });
    this.#source = source;
    this.#filter = filter;
    // Without a listener, an error before the first reader would end the process.
    this.on("error", () => undefined);
    filter.start?.((bytes) => {
      if (!this.destroyed) this.#push(bytes);
    });
  }

  override _read(): void {
    this.#isFull = false;
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

  /** Without a reader, the filter may need the whole body before the reader can start. */
  get #hasReader(): boolean {
    return this.readableFlowing !== null || this.listenerCount("readable") > 0;
  }

  #push(bytes: Buffer): void {
    if (bytes.length > 0) this.#isFull = !this.push(bytes);
  }

  #continue(): void {
    if (this.#isBusy || (this.#isFull && this.#hasReader) || this.destroyed) return;
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
        this.#push(bytes);
        if (chunk === undefined) this.push(null);
        else this.#continue();
      },
      (error: Error) => void this.destroy(error),
    );
  }
}
