/**
 * A TCP network in memory. A connection has two sides; bytes travel in order, in pieces, with latency, and no faster
 * than the receiver reads. Closing follows TCP: `end` closes one direction, closing with unread bytes resets the
 * connection, and bytes to a closed side are answered with a reset. Faults are chosen by the seed.
 */
import { OUTSIDE, type Scheduler } from "./scheduler.ts";
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
/** The capacity of a pipe of Linux. */
const PIPE_BYTES = 65_536;
const LARGEST_WINDOW_BYTES = 262_144;
/** After this many pieces, a side sends larger ones. */
const MOST_SMALL_PIECES = 50;
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
  /** The process that has this side open. Its callbacks run there. */
  process: string;
  events: SideEvents = { data: () => undefined, end: () => undefined, failed: () => undefined };
  /** Set by `join`. */
  peer: Side = this;
  /** When the end of the peer's direction arrived, also if the bytes before it are not read yet. */
  endedMs = Number.POSITIVE_INFINITY;
  /** The process has accepted this connection. */
  isAccepted = false;
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
  #pieces = 0;
  #lastArrivalMs = 0;
  #isRetransmitting = false;

  constructor(
    network: Network,
    label: string,
    address: string,
    port: number,
    process: string,
    random: Seeded,
    conditions: Conditions,
  ) {
    this.#network = network;
    this.label = label;
    this.address = address;
    this.port = port;
    this.process = process;
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
    this.#network.scheduler.after(0, () => this.peer.#fail("ECONNRESET"), OUTSIDE);
    this.#fail("ECONNRESET");
  }

  #resetPeer(): void {
    const { peer } = this;
    this.#deliver(() => peer.#fail("ECONNRESET"));
  }

  /** Must be the last step of a task, because it continues in the process of this side. */
  #fail(error: NetworkError): void {
    if (this.#failure !== undefined) return;
    this.#failure = error;
    this.#received.length = 0;
    this.#receivedBytes = 0;
    const writes = this.#writes.splice(0);
    this.#network.scheduler.within(this.process, () => {
      if (writes.length > 0) this.#failureIsSeen = true;
      for (const { done } of writes) done(error);
      if (!this.#isClosed && this.#isReading) this.#flush();
    });
  }

  /** Sends as much as fits the peer's window. */
  #send(): void {
    const { windowBytes, isSplit } = this.#conditions;
    const { peer } = this;
    for (;;) {
      const [write] = this.#writes;
      if (write === undefined) break;
      // Windows grow, and long bodies have only some small pieces: they would take most of the time of a run.
      const isLong = this.#pieces > MOST_SMALL_PIECES;
      const roomBytes = (isLong ? LARGEST_WINDOW_BYTES : windowBytes) - this.#inFlightBytes - peer.#receivedBytes;
      if (roomBytes <= 0) return;
      const isSmall = isSplit && (!isLong || this.#random.chance(0.2));
      const pieceBytes = Math.min(roomBytes, write.bytes.length, isSmall ? this.#random.size(1, 4096) : 65_536);
      this.#pieces += 1;
      const piece = write.bytes.subarray(0, pieceBytes);
      write.bytes = write.bytes.subarray(pieceBytes);
      if (piece.length > 0) this.#sendPiece(piece);
      if (write.bytes.length > 0) continue;
      this.#writes.shift();
      this.#network.scheduler.after(0, () => write.done(undefined), this.process);
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
    const { scheduler, iterationMs } = this.#network;
    const arrivalMs = Math.ceil((scheduler.nowMs + latencyMs) / iterationMs) * iterationMs;
    this.#lastArrivalMs = Math.max(this.#lastArrivalMs, arrivalMs);
    scheduler.at(
      this.#lastArrivalMs,
      () => {
        if (this.#conditions.isBlackhole) this.#retransmit();
        else arrive();
      },
      OUTSIDE,
    );
  }

  #retransmit(): void {
    if (this.#isRetransmitting) return;
    this.#isRetransmitting = true;
    this.#network.scheduler.after(RETRANSMISSION_LIMIT_MS, () => this.#fail("ETIMEDOUT"), OUTSIDE);
  }

  #arrived(bytes: Buffer | undefined): void {
    if (this.#failure !== undefined) return;
    this.#network.note(this, bytes === undefined ? "end" : "data", bytes?.length);
    if (this.#isClosed) {
      if (bytes !== undefined) this.#resetPeer();
      return;
    }
    if (bytes === undefined) this.endedMs = this.#network.scheduler.nowMs;
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

  /** Continues in the process of this side. */
  #flush(): void {
    this.#network.scheduler.within(this.process, () => this.#read());
  }

  #read(): void {
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
  readonly process: string;
  accept(side: Side): void;
}

/** A listening socket. Processes that share it compete for its connections. */
interface ListeningSocket {
  readonly fd: number;
  readonly address: string;
  readonly port: number;
  /** Other sockets may use the same address (`SO_REUSEPORT`). Each connection belongs to one of them. */
  readonly isShared: boolean;
  readonly listeners: Listener[];
  /** Processes that have inherited the descriptor and do not listen yet. */
  readonly heirs: Set<string>;
  /** Connections that no process has accepted, because only heirs have the socket. */
  readonly waiting: Side[];
}

export class Network {
  readonly scheduler: Scheduler;
  readonly iterationMs: number;
  /** Called for every event, in order. */
  onNote: (side: Side, event: string, bytes: number | undefined) => void = () => undefined;
  readonly #random: Seeded;
  readonly #listening: ListeningSocket[] = [];
  readonly #open = new Set<Side>();
  /** When a process last closed a connection that it had accepted. */
  readonly #closedMs = new Map<string, number>();
  /** By the address that connects. */
  readonly #connections = new Map<string, number>();
  #nextPort = 30_000;
  #nextFd = 10;

  /**
   * Bytes arrive at multiples of `iterationMs`, so that several arrivals happen in one iteration of the gateway's event
   * loop. Handles that it closes are reported as closed after all of them.
   */
  constructor(scheduler: Scheduler, random: Seeded, iterationMs: number) {
    this.scheduler = scheduler;
    this.#random = random;
    this.iterationMs = iterationMs;
  }

  note(side: Side, event: string, bytes?: number): void {
    if (event === "close" || event === "abort") {
      this.#open.delete(side);
      if (side.isAccepted) this.#closedMs.set(side.process, this.scheduler.nowMs);
    }
    this.onNote(side, event, bytes);
  }

  /** When one of these processes closed the last connection that it had accepted. */
  lastClosedMs(isMeant: (process: string) => boolean): number {
    return Math.max(0, ...[...this.#closedMs].filter(([process]) => isMeant(process)).map(([, ms]) => ms));
  }

  /** The sides that a process has open. */
  openSides(process: string): Side[] {
    return [...this.#open].filter((side) => side.process === process);
  }

  /** The listening sockets that one of these processes has open. */
  openListeners(isMeant: (process: string) => boolean): ListeningSocket[] {
    return this.#listening.filter(({ listeners }) => listeners.some((one) => isMeant(one.process)));
  }

  /** Closes all sockets of a process, as the operating system does when the process ends. */
  end(process: string): void {
    for (const { fd } of [...this.#listening]) this.closeInherited(fd, (one) => one === process);
    for (const { listeners } of this.openListeners((one) => one === process))
      for (const listener of listeners.filter((one) => one.process === process)) this.unlisten(listener);
    for (const side of this.openSides(process)) side.close();
  }

  freePort(): number {
    this.#nextPort += 1;
    return this.#nextPort;
  }

  /** Returns false if the address is in use, unless all its sockets are shared. */
  listen(address: string, port: number, listener: Listener, isShared = false): boolean {
    if (this.#find(address, port).some((socket) => !isShared || !socket.isShared)) return false;
    this.#nextFd += 1;
    const socket = { fd: this.#nextFd, address, port, isShared, listeners: [listener] };
    this.#listening.push({ ...socket, heirs: new Set(), waiting: [] });
    return true;
  }

  /** The socket stays open until this process closes it, too. */
  inherit(fd: number, process: string): void {
    this.#withFd(fd)?.heirs.add(process);
  }

  /** One of these processes closes a descriptor that it has inherited. */
  closeInherited(fd: number, isMeant: (process: string) => boolean): void {
    const socket = this.#withFd(fd);
    if (socket === undefined) return;
    for (const heir of socket.heirs) if (isMeant(heir)) socket.heirs.delete(heir);
    this.#closeUnused(socket);
  }

  /** Listens on a socket that another process has opened. */
  share(fd: number, listener: Listener): ListeningSocket | undefined {
    const socket = this.#withFd(fd);
    if (socket === undefined) return undefined;
    socket.listeners.push(listener);
    socket.heirs.clear();
    for (const server of socket.waiting.splice(0)) this.#hand(server, listener);
    return socket;
  }

  unlisten(listener: Listener): void {
    for (const socket of [...this.#listening]) {
      const at = socket.listeners.indexOf(listener);
      if (at >= 0) socket.listeners.splice(at, 1);
      this.#closeUnused(socket);
    }
  }

  /** Connections that wait for the last process are reset. */
  #closeUnused(socket: ListeningSocket): void {
    if (socket.listeners.length > 0 || socket.heirs.size > 0) return;
    this.#listening.splice(this.#listening.indexOf(socket), 1);
    for (const server of socket.waiting) server.abort();
  }

  #withFd(fd: number): ListeningSocket | undefined {
    return this.#listening.find((one) => one.fd === fd);
  }

  #find(address: string, port: number): ListeningSocket[] {
    return this.#listening.filter((one) => one.address === address && one.port === port);
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
      windowBytes: random.chance(faults.smallWindow) ? random.size(16, 4096) : random.size(4096, LARGEST_WINDOW_BYTES),
      isBlackhole: false,
    };
    const label = `${from}>${address}:${port}#${connection}`;
    const { process } = this.scheduler;
    if (random.chance(faults.ignore)) return;
    const establish = (): void => {
      const socket = random.part("socket").pick(this.#find(address, port));
      if (socket === undefined || random.chance(faults.refuse)) {
        this.scheduler.within(process, () => done("ECONNREFUSED", undefined));
        return;
      }
      const client = new Side(this, `${label}c`, from, this.freePort(), process, random.part("client"), conditions);
      const server = new Side(this, `${label}s`, address, port, OUTSIDE, random.part("server"), conditions);
      client.peer = server;
      server.peer = client;
      this.#open.add(client).add(server);
      this.note(client, "open");
      this.#plan(random, faults, client, conditions);
      this.scheduler.after(conditions.baseMs, () => this.#accept(server, socket, random), OUTSIDE);
      if (this.scheduler.enter(process)) this.scheduler.within(process, () => done(undefined, client));
      else client.close();
    };
    this.scheduler.after(conditions.baseMs, establish, OUTSIDE);
  }

  #accept(server: Side, socket: ListeningSocket, random: Seeded): void {
    const listener = random.pick(socket.listeners);
    if (listener !== undefined) this.#hand(server, listener);
    else if (socket.heirs.size > 0) socket.waiting.push(server);
    else server.abort();
  }

  #hand(server: Side, listener: Listener): void {
    server.process = listener.process;
    server.isAccepted = true;
    this.scheduler.within(listener.process, () => listener.accept(server));
  }

  /** A pipe between the running process and a child. */
  pipe(label: string): { readonly ours: Side; readonly theirs: Side } {
    const random = this.#random.part(label);
    const conditions = { baseMs: 0.05, jitterMs: 0.1, isSplit: false, windowBytes: PIPE_BYTES, isBlackhole: false };
    const ours = new Side(this, `${label}p`, "pipe", 0, this.scheduler.process, random.part("parent"), conditions);
    const theirs = new Side(this, `${label}c`, "pipe", 0, OUTSIDE, random.part("child"), conditions);
    ours.peer = theirs;
    theirs.peer = ours;
    this.#open.add(ours).add(theirs);
    return { ours, theirs };
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
    const vanish = (): void => {
      conditions.isBlackhole = true;
      this.note(side, "blackhole");
    };
    if (random.chance(faults.reset)) this.scheduler.after(whenMs(), () => side.break(), OUTSIDE);
    if (random.chance(faults.blackhole)) this.scheduler.after(whenMs(), vanish, OUTSIDE);
  }
}
