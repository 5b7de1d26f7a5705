/**
 * Counts the open HTTP/2 streams of each client address, over all connections and listeners of the thread. A stream may
 * need a connection to a server, so without a limit, one client could use all file descriptors.
 */
import { addressKey } from "../backlog.ts";

export class StreamShares {
  readonly #shares = new Map<string, StreamShare>();

  /** Returns the share of a connection's address. Call `leave` once, when the connection is closed. */
  join(address: string): StreamShare {
    const key = addressKey(address);
    let share = this.#shares.get(key);
    if (share === undefined) {
      share = new StreamShare(() => this.#shares.delete(key));
      this.#shares.set(key, share);
    }
    share.connections += 1;
    return share;
  }

  get size(): number {
    return this.#shares.size;
  }
}

export class StreamShare {
  open = 0;
  connections = 0;
  readonly #unused: () => void;

  constructor(unused: () => void) {
    this.#unused = unused;
  }

  leave(): void {
    this.connections -= 1;
    if (this.connections === 0) this.#unused();
  }
}

/** All listeners of this thread use the descriptors of one process. */
export const streamShares = new StreamShares();
