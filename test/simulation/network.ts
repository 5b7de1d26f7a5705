/**
 * A TCP network in memory. A connection has two sides; bytes travel in order, in pieces, with latency, and no faster
 * than the receiver reads. Closing follows TCP: `end` closes one direction, closing with unread bytes resets the
 * connection, and bytes to a closed side are answered with a reset. Faults are chosen by the seed.
 */
import type { Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

/** The probabilities of faults per connection, and ranges. A field that is 0 switches the fault off. */
export interface Faults {
  /** The connection is slow: latencies of up to `slowMs` instead of about a millisecond. */
  readonly slow: number;
  readonly slowMs: number;
  /** Bytes arrive in small pieces. */
  readonly split: number;
  /** Both sides see a reset at a random time. */
  readonly reset: number;
  /** From a random time on, nothing arrives in either direction, and neither side is notified. */
  readonly blackhole: number;
  /** A connection attempt is refused. */
  readonly refuse: number;
  /** A connection attempt gets no response. */
  readonly ignore: number;
  /** Both sides have a small window, so that writes wait for the reader. */
  readonly smallWindow: number;
}

export const NO_FAULTS: Faults = {
  slow: 0,
  slowMs: 3_000,
  split: 0,
  reset: 0,
  blackhole: 0,
  refuse: 0,
  ignore: 0,
  smallWindow: 0,
};

export type NetworkError = "ECONNRESET" | "ECONNREFUSED" | "EPIPE" | "ETIMEDOUT";

export interface SideEvents {
  data(bytes: Buffer): void;
  /** The peer has ended its direction. */
  end(): void;
  /** The connection has failed; nothing follows. */
  failed(error: NetworkError): void;
}

/** Unacknowledged bytes fail the connection after this time, as Linux does (`tcp_retries2`). */
const RETRANSMISSION_LIMIT_MS = 15 * 60_000;
/** Faults of a connection happen within this time after it was opened, and half of them in the first second. */
const FAULT_WINDOW_MS = 60_000;

interface Segment {
  /** Undefined is the end of the direction. */
  readonly bytes: Buffer | undefined;
}

interface PendingWrite {
  bytes: Buffer;
  readonly done: (error: NetworkError | undefined) => void;
}

/** Network conditions of one connection, which both directions share. */
interface Conditions {
  readonly baseMs: number;
  readonly jitterMs: number;
  readonly isSplit: boolean;
  readonly windowBytes: number;
  isBlackhole: boolean;
}

export class Side {
  readonly label: string;
  readonly address: string;
  readonly port: number;
  events: SideEvents = { data: () => undefined, end: () => undefined, failed: () => undefined };
  /** Set by `join`. */
  peer: Side = this;
  readonly #network: Network;
  readonly #random: Seeded;
  readonly #conditions: Conditions;
  readonly #received: Segment[] = [];
  #receivedBytes = 0;
  #isReading = false;
  #isFlushing = false;
  #hasEnded = false;
  #isClosed = false;
  #failure: NetworkError | undefined = undefined;
  #failureIsSeen = false;
  /** Writes that wait for the peer's window. */
  readonly #writes: PendingWrite[] = [];
  #endWanted = false;
  #inFlightBytes = 0;
  #lastArrivalMs = 0;
  #isRetransmitting = false;

  constructor(network: Network, label: string, address: string, port: number, random: Seeded, conditions: Conditions) {
    this.#network = network;
    this.label = label;
    this.address = address;
    this.port = port;
    this.#random = random;
    this.#conditions = conditions;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get isBlackhole(): boolean {
    return this.#conditions.isBlackhole;
  }

  /** `done` is called when the bytes are in the window of the peer or on the way to it. The bytes are copied. */
  write(bytes: Buffer, done: (error: NetworkError | undefined) => void = () => undefined): void {
    if (this.#isClosed || this.#failure !== undefined || this.#hasEnded || this.#endWanted) {
      const error = this.#failure ?? "EPIPE";
      this.#failureIsSeen = true;
      this.#network.scheduler.after(0, () => done(error));
      return;
    }
    this.#writes.push({ bytes: Buffer.from(bytes), done });
    this.#send();
  }

  /** Closes the direction to the peer after everything that was written. */
  end(): void {
    if (this.#endWanted || this.#isClosed || this.#failure !== undefined) return;
    this.#endWanted = true;
    this.#send();
  }

  /** Closes both directions. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#network.note(this, "close");
    if (this.#failure !== undefined) return;
    if (this.#received.some(({ bytes }) => bytes !== undefined)) this.#resetPeer();
    else {
      this.#endWanted = true;
      this.#send();
    }
  }

  /** Closes both directions with a reset. */
  abort(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#network.note(this, "abort");
    if (this.#failure === undefined) this.#resetPeer();
  }

  read(isReading: boolean): void {
    this.#isReading = isReading;
    if (isReading) this.#flushLater();
  }

  /** A fault: both sides see a reset. */
  break(): void {
    if (this.#isClosed && this.peer.#isClosed) return;
    this.#network.note(this, "reset");
    for (const side of [this, this.peer]) side.#fail("ECONNRESET");
  }

  #resetPeer(): void {
    const { peer } = this;
    this.#deliver(() => peer.#fail("ECONNRESET"));
  }

  #fail(error: NetworkError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#received.length = 0;
    this.#receivedBytes = 0;
    const writes = this.#writes.splice(0);
    if (writes.length > 0) this.#failureIsSeen = true;
    for (const { done } of writes) done(error);
    if (!this.#isClosed && this.#isReading) this.#flushLater();
  }

  /** Sends as much as fits the peer's window. */
  #send(): void {
    const { windowBytes, isSplit } = this.#conditions;
    const { peer } = this;
    for (;;) {
      const [write] = this.#writes;
      if (write === undefined) break;
      const roomBytes = windowBytes - this.#inFlightBytes - peer.#receivedBytes;
      if (roomBytes <= 0) return;
      const pieceBytes = Math.min(roomBytes, write.bytes.length, isSplit ? this.#random.size(1, 4096) : 65_536);
      const piece = write.bytes.subarray(0, pieceBytes);
      write.bytes = write.bytes.subarray(pieceBytes);
      if (piece.length > 0) this.#sendPiece(piece);
      if (write.bytes.length > 0) continue;
      this.#writes.shift();
      this.#network.scheduler.after(0, () => write.done(undefined));
    }
    if (!this.#endWanted || this.#hasEnded) return;
    this.#hasEnded = true;
    this.#deliver(() => peer.#arrived(undefined));
  }

  #sendPiece(bytes: Buffer): void {
    this.#inFlightBytes += bytes.length;
    this.#deliver(() => {
      this.#inFlightBytes -= bytes.length;
      this.peer.#arrived(bytes);
    });
  }

  /** Runs when what this side sent now arrives at the peer, unless the connection has become a black hole. */
  #deliver(arrive: () => void): void {
    const { baseMs, jitterMs } = this.#conditions;
    const latencyMs = baseMs + this.#random.fraction() * jitterMs;
    this.#lastArrivalMs = Math.max(this.#lastArrivalMs, this.#network.scheduler.nowMs + latencyMs);
    this.#network.scheduler.after(this.#lastArrivalMs - this.#network.scheduler.nowMs, () => {
      if (this.#conditions.isBlackhole) this.#retransmit();
      else arrive();
    });
  }

  #retransmit(): void {
    if (this.#isRetransmitting) return;
    this.#isRetransmitting = true;
    this.#network.scheduler.after(RETRANSMISSION_LIMIT_MS, () => this.#fail("ETIMEDOUT"));
  }

  #arrived(bytes: Buffer | undefined): void {
    if (this.#failure !== undefined) return;
    this.#network.note(this, bytes === undefined ? "end" : "data", bytes?.length);
    if (this.#isClosed) {
      if (bytes !== undefined) this.#resetPeer();
      return;
    }
    this.#received.push({ bytes });
    this.#receivedBytes += bytes?.length ?? 0;
    if (this.#isReading) this.#flush();
  }

  #flushLater(): void {
    if (this.#isFlushing) return;
    this.#isFlushing = true;
    this.#network.scheduler.after(0, () => {
      this.#isFlushing = false;
      this.#flush();
    });
  }

  #flush(): void {
    const hadBytes = this.#receivedBytes;
    while (this.#isReading && !this.#isClosed) {
      if (this.#failure !== undefined) {
        if (!this.#failureIsSeen) this.events.failed(this.#failure);
        this.#failureIsSeen = true;
        return;
      }
      const segment = this.#received.shift();
      if (segment === undefined) break;
      this.#receivedBytes -= segment.bytes?.length ?? 0;
      if (segment.bytes === undefined) this.events.end();
      else this.events.data(segment.bytes);
    }
    const { peer } = this;
    // The acknowledgment that opens the window travels back.
    if (this.#receivedBytes < hadBytes && peer.#writes.length > 0) this.#deliver(() => peer.#send());
  }
}

export interface Listener {
  accept(side: Side): void;
}

export class Network {
  readonly scheduler: Scheduler;
  /** Called for every event, in order. */
  onNote: (side: Side, event: string, bytes: number | undefined) => void = () => undefined;
  readonly #random: Seeded;
  readonly #listeners = new Map<string, Listener>();
  readonly #open = new Set<Side>();
  /** By the address that connects. */
  readonly #connections = new Map<string, number>();
  #nextPort = 30_000;

  constructor(scheduler: Scheduler, random: Seeded) {
    this.scheduler = scheduler;
    this.#random = random;
  }

  note(side: Side, event: string, bytes?: number): void {
    if (event === "close" || event === "abort") this.#open.delete(side);
    this.onNote(side, event, bytes);
  }

  /** Sides that are not closed whose address is this. */
  openSides(address: string): Side[] {
    return [...this.#open].filter((side) => side.address === address);
  }

  freePort(): number {
    this.#nextPort += 1;
    return this.#nextPort;
  }

  /** Returns false if the address is in use. */
  listen(address: string, port: number, listener: Listener): boolean {
    const key = `${address}:${port}`;
    if (this.#listeners.has(key)) return false;
    this.#listeners.set(key, listener);
    return true;
  }

  unlisten(address: string, port: number, listener: Listener): void {
    const key = `${address}:${port}`;
    if (this.#listeners.get(key) === listener) this.#listeners.delete(key);
  }

  connect(
    from: string,
    address: string,
    port: number,
    faults: Faults,
    done: (error: NetworkError | undefined, side: Side | undefined) => void,
  ): void {
    const connection = (this.#connections.get(from) ?? 0) + 1;
    this.#connections.set(from, connection);
    // The conditions of a client's connections do not depend on other clients.
    const random = this.#random.part(`${from} ${connection}`);
    const isSlow = random.chance(faults.slow);
    const conditions: Conditions = {
      baseMs: isSlow ? random.between(0, faults.slowMs) : random.between(0.05, 2),
      jitterMs: isSlow ? random.between(0, faults.slowMs) : random.between(0, 1),
      isSplit: random.chance(faults.split),
      windowBytes: random.chance(faults.smallWindow) ? random.size(16, 4096) : random.size(4096, 262_144),
      isBlackhole: false,
    };
    const label = `${from}>${address}:${port}#${connection}`;
    if (random.chance(faults.ignore)) return;
    this.scheduler.after(conditions.baseMs, () => {
      const listener = this.#listeners.get(`${address}:${port}`) ?? this.#listeners.get(`0.0.0.0:${port}`);
      if (listener === undefined || random.chance(faults.refuse)) {
        done("ECONNREFUSED", undefined);
        return;
      }
      const client = new Side(this, `${label}c`, from, this.freePort(), random.part("client"), conditions);
      const server = new Side(this, `${label}s`, address, port, random.part("server"), conditions);
      client.peer = server;
      server.peer = client;
      this.#open.add(client).add(server);
      this.note(client, "open");
      this.#plan(random, faults, client, conditions);
      done(undefined, client);
      this.scheduler.after(conditions.baseMs, () => listener.accept(server));
    });
  }

  /** Resolves with undefined if there is no connection within `limitMs`. */
  open(from: string, address: string, port: number, faults: Faults, limitMs: number): Promise<Side | undefined> {
    return new Promise((resolve) => {
      let isLate = false;
      const limit = this.scheduler.after(limitMs, () => {
        isLate = true;
        resolve(undefined);
      });
      this.connect(from, address, port, faults, (_error, side) => {
        if (isLate) side?.abort();
        this.scheduler.cancel(limit);
        resolve(side);
      });
    });
  }

  #plan(random: Seeded, faults: Faults, side: Side, conditions: Conditions): void {
    const whenMs = (): number => random.fraction() ** 6 * FAULT_WINDOW_MS;
    if (random.chance(faults.reset)) this.scheduler.after(whenMs(), () => side.break());
    if (random.chance(faults.blackhole))
      this.scheduler.after(whenMs(), () => {
        conditions.isBlackhole = true;
        this.note(side, "blackhole");
      });
  }
}
