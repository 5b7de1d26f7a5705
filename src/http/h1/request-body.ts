/**
 * Passes a request body from the connection to its reader. Data that arrives before there is a reader, or while it is
 * paused, is held, and the connection stops reading.
 */
import { EventEmitter } from "node:events";
import type { BodyListener, RequestBodyStream } from "../body.ts";

const TINY_BYTES = 512;
const JOINED_BYTES = 16 * 1024;

/** Once the connection serves another request, it must ignore the calls of earlier bodies. */
export interface BodyCarrier {
  /** Called when the reader pauses, and when data is held. */
  pauseBody(body: RequestBodySource): void;
  /** Called when the reader resumes, and while a `peek` waits. The carrier must call `flush` asynchronously. */
  resumeBody(body: RequestBodySource): void;
  /** Reports that `bytes` of the body wait for the reader, or for the receiver to which the reader forwards them. */
  bodyWaits(body: RequestBodySource, bytes: number): void;
}

export class RequestBodySource extends EventEmitter implements RequestBodyStream {
  readableEnded = false;
  destroyed = false;
  readonly #carrier: BodyCarrier;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #queuedBytes = 0;
  #joinBuffer: Buffer | undefined = undefined;
  /** The value is undefined until a reader is attached, pauses, or resumes. */
  #isFlowing: boolean | undefined = undefined;
  #isComplete = false;
  #peeker: ((first: Buffer | undefined) => void) | undefined = undefined;

  constructor(carrier: BodyCarrier) {
    super();
    this.#carrier = carrier;
  }

  /** True if no data is held and the reader is not paused, so that the rest must come from the client. */
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
    this.#carrier.pauseBody(this);
    return this;
  }

  resume(): this {
    if (this.#isFlowing === true) return this;
    this.#isFlowing = true;
    this.#carrier.resumeBody(this);
    return this;
  }

  queued(bytes: number): void {
    if (bytes === this.#queuedBytes || this.destroyed) return;
    this.#queuedBytes = bytes;
    this.#reportWaiting();
  }

  peek(seen: (first: Buffer | undefined) => void): void {
    this.#peeker = seen;
    this.#carrier.resumeBody(this);
  }

  push(chunk: Buffer): void {
    if (this.destroyed) return;
    if (this.#peeker !== undefined) this.#carrier.resumeBody(this);
    if (this.#isFlowing === true && this.#held.length === 0) this.emit("data", chunk);
    else {
      this.#hold(chunk);
      this.#heldBytes += chunk.length;
      this.#carrier.pauseBody(this);
      this.#reportWaiting();
    }
  }

  #reportWaiting(): void {
    this.#carrier.bodyWaits(this, this.#heldBytes + this.#queuedBytes);
  }

  /**
   * Joins tiny chunks, because one read of the socket may contain thousands, and a buffer for each would take many
   * times their bytes.
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

  complete(): void {
    this.#isComplete = true;
    if (this.#peeker !== undefined) this.#carrier.resumeBody(this);
    this.#endIfRead();
  }

  /** Delivers held data until the reader pauses again. Returns true if the connection should read more. */
  flush(): boolean {
    if (this.#peeker !== undefined) return this.#tellFirst(this.#peeker);
    const heldBytes = this.#heldBytes;
    while (this.#isFlowing === true && !this.destroyed) {
      const chunk = this.#held.shift();
      if (chunk === undefined) break;
      this.#heldBytes -= chunk.length;
      this.emit("data", chunk);
    }
    if (this.#heldBytes !== heldBytes && !this.destroyed) this.#reportWaiting();
    this.#endIfRead();
    return this.#isFlowing === true && this.#held.length === 0;
  }

  abort(): void {
    if (this.readableEnded || this.destroyed) return;
    this.destroyed = true;
    this.#held = [];
    this.#heldBytes = 0;
    this.emit("close");
  }

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
