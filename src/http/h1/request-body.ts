/**
 * The body of a request on its way from the connection to its reader. What arrives before there is a reader, or while
 * it pauses, is held (one read of the socket at most) and the connection stops reading. Much cheaper than a Readable,
 * of which a body needs nothing else.
 */
import { EventEmitter } from "node:events";
import type { BodyListener, RequestBodyStream } from "../body.ts";

const TINY_BYTES = 512;
const JOINED_BYTES = 16 * 1024;

export interface BodyCarrier {
  /** The reader has enough for now. */
  pauseBody(): void;
  /** The reader wants more: `flush` must follow in a later turn. */
  resumeBody(): void;
}

export class RequestBodySource extends EventEmitter implements RequestBodyStream {
  readableEnded = false;
  destroyed = false;
  readonly #carrier: BodyCarrier;
  #held: Buffer[] = [];
  /** Where tiny chunks are joined. */
  #room: Buffer | undefined = undefined;
  /** Undefined until somebody reads. */
  #isFlowing: boolean | undefined = undefined;
  #isComplete = false;
  #peeker: ((first: Buffer | undefined) => void) | undefined = undefined;

  constructor(carrier: BodyCarrier) {
    super();
    this.#carrier = carrier;
  }

  /** Nothing waits for the reader: it is the client that owes the rest. */
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

  /** One read of the socket may bring thousands of tiny chunks: a buffer for each would take many times their bytes. */
  #hold(chunk: Buffer): void {
    const last = this.#held.at(-1);
    if (chunk.length >= TINY_BYTES || last === undefined || last.length >= JOINED_BYTES) this.#held.push(chunk);
    else this.#held[this.#held.length - 1] = this.#joined(last, chunk);
  }

  /** Appends in place while there is room behind the bytes that were joined last. */
  #joined(last: Buffer, chunk: Buffer): Buffer {
    const length = last.length + chunk.length;
    const room = this.#room;
    if (room !== undefined && last.buffer === room.buffer && length <= room.length) {
      chunk.copy(room, last.length);
      return room.subarray(0, length);
    }
    const grown = Buffer.allocUnsafeSlow(JOINED_BYTES + TINY_BYTES);
    if (length > grown.length) return Buffer.concat([last, chunk]);
    last.copy(grown);
    chunk.copy(grown, last.length);
    this.#room = grown;
    return grown.subarray(0, length);
  }

  /** Every byte has been pushed. */
  complete(): void {
    this.#isComplete = true;
    if (this.#peeker !== undefined) this.#carrier.resumeBody();
    this.#endIfRead();
  }

  /** Hands over what was held, until the reader pauses again; true if nothing is left. */
  flush(): boolean {
    if (this.#peeker !== undefined) return this.#tellFirst(this.#peeker);
    while (this.#isFlowing === true && this.#held.length > 0 && !this.destroyed) {
      this.emit("data", this.#held.shift());
    }
    this.#endIfRead();
    return this.#isFlowing === true && this.#held.length === 0;
  }

  /** It breaks off: nothing more will come. */
  abort(): void {
    if (this.readableEnded || this.destroyed) return;
    this.destroyed = true;
    this.#held = [];
    this.emit("close");
  }

  /** True while nothing has come: the connection must read. */
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
