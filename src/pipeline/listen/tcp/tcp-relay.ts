/**
 * Relays bytes between a client and a backend, with backpressure. Each side can end its direction on its own.
 */
import type { Socket } from "node:net";
import type { StreamAccount, StreamPool } from "../../../base/memory-budget.ts";
import { IDLE_LIMIT_MS, type IdleConnections, type Watched, type WatchedPlace } from "../idle.ts";

export interface TcpRelayOptions {
  readonly idle: IdleConnections;
  /** Bytes that wait for either side are charged to this pool. */
  readonly waitingBytes: StreamPool;
  readonly chargedTo: string;
  /** The connection is closed after this time without data in either direction, or earlier if a side does not read. */
  readonly idleLimitMs: number;
}

export class TcpRelay implements Watched {
  readonly #client: Socket;
  readonly #backend: Socket;
  readonly #options: TcpRelayOptions;
  readonly #place: WatchedPlace;
  readonly #account: StreamAccount;
  #relayedBytes = 0;
  #open = 2;

  constructor(client: Socket, backend: Socket, options: TcpRelayOptions) {
    this.#client = client;
    this.#backend = backend;
    this.#options = options;
    this.#place = options.idle.add(this);
    this.#account = options.waitingBytes.open(options.chargedTo, () => this.destroy());
    this.#relay(client, backend);
    this.#relay(backend, client);
  }

  destroy(): void {
    this.#client.destroy();
    this.#backend.destroy();
  }

  progress(): number {
    return 2 * this.#relayedBytes - this.#client.writableLength - this.#backend.writableLength;
  }

  isWaiting(): boolean {
    return true;
  }

  idleLimitMs(): number {
    const isStuck = this.#client.writableLength + this.#backend.writableLength > 0;
    return isStuck ? Math.min(IDLE_LIMIT_MS, this.#options.idleLimitMs) : this.#options.idleLimitMs;
  }

  expire(): void {
    this.destroy();
  }

  #relay(from: Socket, to: Socket): void {
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

  #closed(other: Socket): void {
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
