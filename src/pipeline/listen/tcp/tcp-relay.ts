/**
 * Relays bytes between a client and a backend, with backpressure. Each side can end its direction on its own.
 */
import type { Duplex } from "node:stream";
import type { StreamAccount, StreamPool } from "../../../base/memory-budget.ts";
import { type IdleConnections, joinedConnections, type WatchedPlace } from "../idle.ts";

export interface TcpRelayOptions {
  readonly idle: IdleConnections;
  /** Bytes that wait for either side are charged to this pool. */
  readonly waitingBytes: StreamPool;
  readonly chargedTo: string;
  /** The connection is closed after this time without data in either direction, or earlier if a side does not read. */
  readonly idleLimitMs: number;
}

export class TcpRelay {
  readonly #client: Duplex;
  readonly #backend: Duplex;
  readonly #options: TcpRelayOptions;
  readonly #place: WatchedPlace;
  readonly #account: StreamAccount;
  #relayedBytes = 0;
  #open = 2;

  constructor(client: Duplex, backend: Duplex, options: TcpRelayOptions) {
    this.#client = client;
    this.#backend = backend;
    this.#options = options;
    const destroy = (): void => this.#destroy();
    const { idle, idleLimitMs, waitingBytes, chargedTo } = options;
    this.#place = idle.add(joinedConnections([client, backend], idleLimitMs, () => this.#relayedBytes, destroy));
    this.#account = waitingBytes.open(chargedTo, destroy);
    this.#relay(client, backend);
    this.#relay(backend, client);
  }

  #destroy(): void {
    this.#client.destroy();
    this.#backend.destroy();
  }

  #relay(from: Duplex, to: Duplex): void {
    from.on("data", (chunk: Buffer) => {
      this.#relayedBytes += chunk.length;
      if (!to.writable || to.write(chunk)) return;
      from.pause();
      this.#charge();
    });
    to.on("drain", () => {
      this.#charge();
      from.resume();
    });
    from.on("end", () => to.end());
    from.on("error", () => undefined);
    from.on("close", () => this.#closed(to));
    if (from.destroyed) this.#closed(to);
    else from.resume();
  }

  #charge(): void {
    this.#account.resize(this.#client.writableLength + this.#backend.writableLength);
  }

  #closed(other: Duplex): void {
    this.#open -= 1;
    if (this.#open === 0) {
      this.#options.idle.remove(this.#place);
      this.#account.close();
      return;
    }
    // Bytes received from the closed side are still written.
    if (other.writableLength === 0) other.destroy();
    else {
      other.end();
      other.once("finish", () => other.destroy());
    }
  }
}
