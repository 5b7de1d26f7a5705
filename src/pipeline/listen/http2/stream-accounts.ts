/**
 * Charges the open streams of one HTTP/2 connection to their clients. A client opens a stream with a few bytes and can
 * keep it open by not reading the response, so streams count against the client's memory like bodies.
 */
import type { StreamAccount, StreamPool } from "../../../base/memory-budget.ts";

/** Estimates a stream, its exchange, and a response that fits into the stream's buffer. The head is added. */
const STREAM_BYTES = 16 * 1024;
/**
 * The charge is rounded down to a multiple, so that it seldom changes. The first streams are part of the memory that is
 * estimated for each connection.
 */
const STEP_BYTES = 64 * 1024;

export interface StreamCharge {
  readonly client: ClientStreams;
  readonly bytes: number;
}

export class StreamAccounts {
  readonly #pool: StreamPool;
  readonly #cut: (client: ClientStreams) => void;
  /** Only a proxy sends the streams of several clients over one connection. */
  readonly #clients = new Map<string, ClientStreams>();
  #latest: ClientStreams | undefined = undefined;

  /** `cut` must end the client's streams on this connection. */
  constructor(pool: StreamPool, cut: (client: ClientStreams) => void) {
    this.#pool = pool;
    this.#cut = cut;
  }

  /** The clients with open streams, and the latest. */
  get clients(): number {
    return this.#clients.size;
  }

  /** The client's streams may be cut before this returns. */
  charge(name: string, headBytes: number): StreamCharge {
    const latest = this.#latest?.isCut === false ? this.#latest : undefined;
    const client = latest?.name === name ? latest : this.#find(name);
    if (latest !== client && latest?.bytes === 0) this.#clients.delete(latest.name);
    this.#latest = client;
    const bytes = STREAM_BYTES + headBytes;
    this.#resize(client, bytes);
    return { client, bytes };
  }

  #find(name: string): ClientStreams {
    let client = this.#clients.get(name);
    if (client === undefined) {
      client = new ClientStreams(name);
      this.#clients.set(name, client);
    }
    return client;
  }

  release({ client, bytes }: StreamCharge): void {
    if (client.isCut) return;
    this.#resize(client, -bytes);
    // The latest client is likely to open the next stream.
    if (client.bytes === 0 && client !== this.#latest) this.#clients.delete(client.name);
  }

  #resize(client: ClientStreams, bytes: number): void {
    client.bytes += bytes;
    const neededBytes = client.bytes - (client.bytes % STEP_BYTES);
    const chargedBytes = client.account?.bytes ?? 0;
    // One step more than needed stays charged, so that a constant number of streams changes nothing.
    const fits = neededBytes <= chargedBytes && chargedBytes <= neededBytes + STEP_BYTES;
    if (chargedBytes === neededBytes || (fits && neededBytes > 0)) return;
    client.account ??= this.#pool.open(client.name, () => {
      // The streams end later, and those that begin before are charged to another account.
      client.isCut = true;
      this.#clients.delete(client.name);
      this.#cut(client);
    });
    client.account.resize(neededBytes);
  }
}

export class ClientStreams {
  readonly name: string;
  bytes = 0;
  isCut = false;
  account: StreamAccount | undefined = undefined;

  constructor(name: string) {
    this.name = name;
  }
}
