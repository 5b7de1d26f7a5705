/**
 * Whether the other side of an HTTP/2 connection is still there. A session that has ended with a protocol error does not
 * read any more, so that it never hears of the end of its connection: a peer that is silent is asked with a PING, which
 * everybody has to answer (RFC 9113 section 6.7), and is given up if nothing comes.
 */
import type { Http2Session } from "node:http2";
import type { Socket } from "node:net";

/** Silence before the question, and before the end. Short failures of a network are no reason. */
export const SILENT_PEER_MS = 15_000;
const GIVEN_UP_AFTER = 3;

export class LifeSigns {
  readonly #session: Http2Session;
  readonly #socket: Socket;
  readonly #askAfterMs: number;
  #received = -1;
  #silentMs = 0;
  #isAsked = false;

  constructor(session: Http2Session, socket: Socket, askAfterMs = SILENT_PEER_MS) {
    this.#session = session;
    this.#socket = socket;
    this.#askAfterMs = askAfterMs;
  }

  /** Called from time to time while somebody waits; true if nobody is there. */
  hasDied(elapsedMs: number): boolean {
    const { bytesRead } = this.#socket;
    if (bytesRead !== this.#received) {
      this.#received = bytesRead;
      this.#seen();
      return false;
    }
    this.#silentMs += elapsedMs;
    if (this.#silentMs >= GIVEN_UP_AFTER * this.#askAfterMs) return true;
    if (this.#silentMs >= this.#askAfterMs && !this.#isAsked) this.#ask();
    return false;
  }

  #ask(): void {
    this.#isAsked = true;
    if (this.#session.destroyed) return;
    this.#session.ping((error) => {
      if (!error) this.#seen();
    });
  }

  #seen(): void {
    this.#silentMs = 0;
    this.#isAsked = false;
  }
}
