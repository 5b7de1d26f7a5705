/**
 * Carries a request body from the connection to its reader. Data that arrives before there is a reader, or while it is
 * paused, is held (at most one read of the socket), and the connection stops reading. It is much cheaper than a
 * Readable.
 */
import { EventEmitter } from "node:events";
import type { BodyListener, RequestBodyStream } from "../body.ts";

const TINY_BYTES = 512;
const JOINED_BYTES = 16 * 1024;

export interface BodyCarrier {
  /** The reader paused. */
  pauseBody(): void;
  /** The reader resumed; `flush` must follow in a later turn of the event loop. */
  resumeBody(): void;
}

export class RequestBodySource extends EventEmitter implements RequestBodyStream {
  readableEnded = false;
  destroyed = false;
  readonly #carrier: BodyCarrier;
  #held: Buffer[] = [];
  /** The buffer in which tiny chunks are joined. */
  #joinBuffer: Buffer | undefined = undefined;
  /** Undefined until a reader is attached. */
  #isFlowing: boolean | undefined = undefined;
  #isComplete = false;
  #peeker: ((first: Buffer | undefined) => void) | undefined = undefined;

  constructor(carrier: BodyCarrier) {
    super();
    this.#carrier = carrier;
  }

  /** Nothing is held for the reader, so the rest must come from the client. */
  get isDrained(): boolean {
    return this.#held.length === 0 && this.#isFlowing !== false;
  }

  override on(event: string, listener: BodyListener): this {
    super.on(event, listener);
    if (event === "data" && this.#isFlowing === undefined) this.resume();
    return this;
  }

  pause(): this {
    this.#isFlowing = false;
    this.#carrier.pauseBody();
    return this;
  }

  resume(): this {
    if (this.#isFlowing === true) return this;
    this.#isFlowing = true;
    this.#carrier.resumeBody();
    return this;
  }

  peek(seen: (first: Buffer | undefined) => void): void {
    this.#peeker = seen;
    this.#carrier.resumeBody();
  }

  push(chunk: Buffer): void {
    if (this.destroyed) return;
    if (this.#peeker !== undefined) this.#carrier.resumeBody();
    if (this.#isFlowing === true && this.#held.length === 0) this.emit("data", chunk);
    else {
      this.#hold(chunk);
      this.#carrier.pauseBody();
    }
  }

  /**
   * One read of the socket may contain thousands of tiny chunks; a buffer for each would take many times their bytes.
   */
  #hold(chunk: Buffer): void {
    const last = this.#held.at(-1);
    if (chunk.length >= TINY_BYTES || last === undefined || last.length >= JOINED_BYTES) this.#held.push(chunk);
    else this.#held[this.#held.length - 1] = this.#joined(last, chunk);
  }

  /** Appends in place while there is capacity after the bytes that were joined last. */
  #joined(last: Buffer, chunk: Buffer): Buffer {
    const length = last.length + chunk.length;
    const buffer = this.#joinBuffer;
    if (buffer !== undefined && last.buffer === buffer.buffer && length <= buffer.length) {
      chunk.copy(buffer, last.length);
      return buffer.subarray(0, length);
    }
    const grown = Buffer.allocUnsafeSlow(JOINED_BYTES + TINY_BYTES);
    if (length > grown.length) return Buffer.concat([last, chunk]);
    last.copy(grown);
    chunk.copy(grown, last.length);
    this.#joinBuffer = grown;
    return grown.subarray(0, length);
  }

  /** Called when every byte was pushed. */
  complete(): void {
    this.#isComplete = true;
    if (this.#peeker !== undefined) this.#carrier.resumeBody();
    this.#endIfRead();
  }

  /** Delivers held data until the reader pauses again. Returns true if nothing is left. */
  flush(): boolean {
    if (this.#peeker !== undefined) return this.#tellFirst(this.#peeker);
    while (this.#isFlowing === true && this.#held.length > 0 && !this.destroyed) {
      this.emit("data", this.#held.shift());
    }
    this.#endIfRead();
    return this.#isFlowing === true && this.#held.length === 0;
  }

  /** The body breaks off; no more data will arrive. */
  abort(): void {
    if (this.readableEnded || this.destroyed) return;
    this.destroyed = true;
    this.#held = [];
    this.emit("close");
  }

  /** Returns true while no data has arrived, so that the connection must read. */
  #tellFirst(peeker: (first: Buffer | undefined) => void): boolean {
    if (this.#held.length === 0 && !this.#isComplete) return !this.destroyed;
    this.#peeker = undefined;
    if (!this.destroyed) peeker(this.#held[0]);
    return this.#held.length === 0;
  }

  #endIfRead(): void {
    if (!this.#isComplete || this.#isFlowing !== true || this.#held.length > 0) return;
    if (this.readableEnded || this.destroyed) return;
    this.readableEnded = true;
    this.emit("end");
  }
}
