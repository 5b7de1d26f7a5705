/**
 * The end of a connection that the client may still be sending on. Our side is closed, what comes is read and thrown away:
 * closing with unread bytes would reset the connection, and the reset could take the last answer with it
 * (RFC 9112 section 9.6). Bounded in time, in silence and in bytes, so that nobody holds a connection that is over.
 */
import type { Socket } from "node:net";

/** Nothing moved for this long: whoever reads the answer slowly keeps it, because nothing is left unread. */
export const LINGER_SILENCE_MS = 2_000;
/** A client that goes on sending is cut. */
const LINGER_MS = 30_000;
const MAX_LINGER_BYTES = 64 * 1024 * 1024;

export class Linger {
  readonly #socket: Socket;
  readonly #sweepMs: number;
  readonly #mostBytes: number;
  #progress = -1;
  #silentMs = 0;
  #allMs = 0;

  /** `sweepMs`: the time between two looks. */
  constructor(socket: Socket, sweepMs: number) {
    this.#socket = socket;
    this.#sweepMs = sweepMs;
    this.#mostBytes = socket.bytesRead + MAX_LINGER_BYTES;
    socket.end();
    socket.resume();
    if (socket.readableEnded) socket.destroySoon();
  }

  /** One look; bytes that the client takes count as well as those it sends. */
  sweep(): void {
    const socket = this.#socket;
    const progress = socket.bytesRead + socket.bytesWritten - socket.writableLength;
    this.#silentMs = progress === this.#progress ? this.#silentMs + this.#sweepMs : 0;
    this.#progress = progress;
    this.#allMs += this.#sweepMs;
    if (this.#silentMs >= LINGER_SILENCE_MS || this.#allMs >= LINGER_MS) socket.destroy();
  }

  received(): void {
    if (this.#socket.bytesRead > this.#mostBytes) this.#socket.destroy();
  }
}
