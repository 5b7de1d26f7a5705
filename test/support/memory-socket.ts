/**
 * A socket in memory whose peer is the test. As with Node's sockets, `close` follows `destroy` in a later step, so that
 * other events can come in between.
 */
import { Duplex } from "node:stream";

type Done = (error?: Error | null) => void;

export class MemorySocket extends Duplex {
  readonly remoteAddress = "192.0.2.1";
  readonly remotePort = 40_000;
  bytesRead = 0;
  bytesWritten = 0;
  /** The peer does not read: writes wait until `readOn`. */
  isStuck = false;
  #waiting: Done | undefined = undefined;
  #closing: Done | undefined = undefined;

  constructor() {
    super({ allowHalfOpen: true });
  }

  override _read(): void {
    // The peer sends when it likes.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.bytesWritten += chunk.length;
    if (this.isStuck) this.#waiting = done;
    else done();
  }

  override _destroy(error: Error | null, closed: (error?: Error | null) => void): void {
    this.#closing = () => closed(error);
  }

  /** Bytes arrive from the peer. */
  arrive(bytes: Buffer): void {
    if (this.destroyed || this.readableEnded) return;
    this.bytesRead += bytes.length;
    this.push(bytes);
  }

  /** The peer closes its side. */
  arriveEnd(): void {
    if (!this.destroyed) this.push(null);
  }

  /** The peer resets the connection. */
  arriveReset(): void {
    this.destroy(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));
  }

  readOn(): void {
    this.isStuck = false;
    const done = this.#waiting;
    this.#waiting = undefined;
    done?.();
  }

  /** Runs the step in which a destroyed socket emits `close`. */
  finishClosing(): void {
    const closed = this.#closing;
    this.#closing = undefined;
    closed?.();
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once("finish", () => this.destroy());
  }

  resetAndDestroy(): this {
    return this.destroy();
  }
}
