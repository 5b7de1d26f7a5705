/**
 * Detects dead peers of HTTP/2 connections. The gateway sends a PING to a silent peer, which must respond (RFC 9113
 * section 6.7) and is otherwise considered dead.
 */
import type { Http2Session } from "node:http2";
import type { Socket } from "node:net";

export const SILENT_PEER_MS = 15_000;
const GIVEN_UP_AFTER = 3;

export class LifeSigns {
  readonly #session: Http2Session;
  readonly #socket: Socket;
  readonly #pingAfterMs: number;
  #received = -1;
  #silentMs = 0;
  #isPingSent = false;

  constructor(session: Http2Session, socket: Socket, pingAfterMs = SILENT_PEER_MS) {
    this.#session = session;
    this.#socket = socket;
    this.#pingAfterMs = pingAfterMs;
  }

  /** Called periodically. `elapsedMs` is the time since the last call. */
  hasDied(elapsedMs: number): boolean {
    const { bytesRead } = this.#socket;
    if (bytesRead !== this.#received) {
      this.#received = bytesRead;
      this.#seen();
      return false;
    }
    this.#silentMs += elapsedMs;
    if (this.#silentMs >= GIVEN_UP_AFTER * this.#pingAfterMs) return true;
    if (this.#silentMs >= this.#pingAfterMs && !this.#isPingSent) this.#sendPing();
    return false;
  }

  #sendPing(): void {
    this.#isPingSent = true;
    if (this.#session.destroyed) return;
    this.#session.ping((error) => {
      if (!error) this.#seen();
    });
  }

  #seen(): void {
    this.#silentMs = 0;
    this.#isPingSent = false;
  }
}
