/**
 * Charges the bytes of one exchange that wait in buffers to its client. If streams use too much memory, the pool may
 * abort the exchange.
 */
import type { StreamAccount, StreamPool } from "../../base/memory-budget.ts";
import { clientKey } from "../../core/principal.ts";

export interface ChargedClient {
  readonly client: string;
}

/** Returns the key of a client that is identified by its address. */
export function addressKey(address: string | undefined): string {
  return clientKey(undefined, address ?? "");
}

export class Backlog {
  readonly #pool: StreamPool;
  readonly #client: () => string;
  readonly #cut: () => void;
  /** The account is opened with the first charge, because most exchanges have none. */
  #account: StreamAccount | undefined = undefined;
  #responseBytes = 0;
  #requestBytes = 0;
  #isClosed = false;

  constructor(pool: StreamPool, client: () => string, cut: () => void) {
    this.#pool = pool;
    this.#client = client;
    this.#cut = cut;
  }

  set responseBytes(bytes: number) {
    this.#responseBytes = bytes;
    this.#update();
  }

  set requestBytes(bytes: number) {
    this.#requestBytes = bytes;
    this.#update();
  }

  close(): void {
    this.#isClosed = true;
    this.#account?.close();
  }

  #update(): void {
    const bytes = this.#responseBytes + this.#requestBytes;
    if (this.#isClosed || (this.#account === undefined && bytes === 0)) return;
    this.#account ??= this.#pool.open(this.#client(), this.#cut);
    this.#account.resize(bytes);
  }
}
