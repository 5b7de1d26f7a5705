/**
 * Reads sockets into one buffer that all sockets of a thread share, which avoids an allocation for each read, and limits
 * the reads in an event-loop iteration, so that busy sockets do not delay new connections. Accepted
 * sockets and pipes of children have no documented option for this, so `readOpened` sets the properties that Node's
 * `onread` option sets.
 */
import { type OnReadOpts, Socket } from "node:net";
import { type Clock, systemClock } from "../../base/clock.ts";

/** The buffer size that libuv suggests for a read. */
export const READ_BYTES = 64 * 1024;
const FULL_READS_PER_ITERATION = 32;
/** TLS delivers at most this much in one read. */
const LARGE_READ_BYTES = 16 * 1024;
/** What the receivers do with large reads may take this long in one iteration, besides the first and the last read. */
const LARGE_READS_MS = 5;
/** In shorter iterations, the backlog is accepted fast enough. */
const LONG_ITERATION_MS = 4;
/** Limits how long accepting takes precedence over reading. */
const ACCEPT_MS = 20;

export interface ReadSocket {
  readonly destroyed: boolean;
  isPaused(): boolean;
  resume(): unknown;
}

export class FairReads {
  readonly #clock: Clock;
  readonly #schedule: (action: () => void) => void;
  readonly #endIteration = (): void => this.#iterationEnded();
  readonly #sockets = new Set<ReadSocket>();
  #held: (() => void)[] = [];
  #fullReads = 0;
  #firstLargeReadMs: number | undefined = undefined;
  #hasReadLong = false;
  #isWatching = false;
  #hasAccepted = false;
  #iterationStartMs = Number.POSITIVE_INFINITY;
  #acceptsFirst = false;
  #acceptUntilMs: number | undefined = undefined;

  /** `schedule` calls back at the end of the current event-loop iteration, or of the next one if called at the end. */
  constructor(clock: Clock, schedule: (action: () => void) => void = setImmediate) {
    this.#clock = clock;
    this.#schedule = schedule;
  }

  get isHolding(): boolean {
    return this.#acceptsFirst || this.#hasReadLong || this.#fullReads > FULL_READS_PER_ITERATION;
  }

  accepted(): void {
    this.#hasAccepted = true;
    this.#watch();
  }

  /**
   * Called after the receiver of a read returned. Returns false if the caller must stop reading. The socket is resumed
   * later, unless its owner paused it.
   */
  mayReadOn(socket: ReadSocket, size: number): boolean {
    if (size >= LARGE_READ_BYTES) this.#countLarge(size);
    if (!this.isHolding || socket.destroyed || socket.isPaused()) return true;
    this.#sockets.add(socket);
    return false;
  }

  #countLarge(size: number): void {
    if (size === READ_BYTES) this.#fullReads += 1;
    const nowMs = this.#clock.monotonicMs();
    this.#firstLargeReadMs ??= nowMs;
    this.#hasReadLong = nowMs - this.#firstLargeReadMs >= LARGE_READS_MS;
    this.#watch();
  }

  /** Runs an action that resumes reading a socket, immediately or when reading may continue. */
  run(action: () => void): void {
    if (this.isHolding) this.#held.push(action);
    else action();
  }

  runLater(action: () => void): void {
    this.run(() => this.#schedule(action));
  }

  #watch(): void {
    if (this.#isWatching) return;
    this.#isWatching = true;
    this.#schedule(this.#endIteration);
  }

  #iterationEnded(): void {
    const nowMs = this.#clock.monotonicMs();
    const isLong = nowMs - this.#iterationStartMs >= LONG_ITERATION_MS;
    this.#fullReads = 0;
    this.#firstLargeReadMs = undefined;
    this.#hasReadLong = false;
    if (!this.#hasAccepted) this.#acceptsFirst = false;
    else if (!this.#acceptsFirst) this.#acceptsFirst = isLong;
    else if (this.#acceptUntilMs === undefined) this.#acceptUntilMs = nowMs + ACCEPT_MS;
    else if (nowMs >= this.#acceptUntilMs) this.#acceptsFirst = false;
    this.#isWatching = this.#hasAccepted;
    this.#iterationStartMs = this.#hasAccepted ? nowMs : Number.POSITIVE_INFINITY;
    this.#hasAccepted = false;
    if (this.#isWatching) this.#schedule(this.#endIteration);
    if (!this.#acceptsFirst) this.#release();
  }

  #release(): void {
    this.#acceptUntilMs = undefined;
    if (this.#sockets.size === 0 && this.#held.length === 0) return;
    const sockets = [...this.#sockets];
    const held = this.#held;
    this.#sockets.clear();
    this.#held = [];
    for (const socket of sockets) if (!socket.destroyed && !socket.isPaused()) socket.resume();
    for (const action of held) action();
  }
}

/** All listeners and sockets of this thread share one event loop. */
export const fairReads = new FairReads(systemClock);

const buffer = Buffer.allocUnsafeSlow(READ_BYTES);

let isFast = true;

/** Applies to sockets opened afterwards. */
export function setFastReads(enabled: boolean): void {
  isFast = enabled;
}

/**
 * The buffer is reused, so copy the bytes you need before returning. Returns false to stop reading until `resume()`.
 */
export type Received = (bytes: Buffer) => boolean;

/**
 * Returns the `connect` options that deliver a socket's bytes to `received`. Call `readConnecting` with the socket.
 */
export function readOptions(received: Received | undefined): { onread?: OnReadOpts } {
  if (received === undefined || !isFast) return {};
  return { onread: { buffer, callback: borrowingReader(received) } };
}

/** Delivers the bytes of a socket to `received` if its options (`readOptions`) do not. */
export function readConnecting(socket: Socket, received: Received, options: { onread?: OnReadOpts }): void {
  if (options.onread === undefined) socket.on("data", received);
}

/** The socket is `this`, so that one function serves all sockets. */
type SocketReader = (this: Socket, size: number) => boolean;

export function socketReader(received: (this: Socket, chunk: Buffer) => boolean): SocketReader {
  return function (size) {
    return received.call(this, copied(bytesRead(size))) && fairReads.mayReadOn(this, size);
  };
}

/** The receiver must not keep the bytes, which are a view of the shared buffer. */
export function borrowingReader(received: Received): SocketReader {
  return function (size) {
    return received(bytesRead(size)) && fairReads.mayReadOn(this, size);
  };
}

interface Handle {
  useUserBuffer?: (buffer: Buffer) => void;
}

/**
 * Reads a socket that Node opened (accepted, or a pipe of a child). Returns false if fast reads are disabled, the
 * socket uses TLS, or this version of Node lacks one of the properties. The caller must then listen to `data` events.
 */
export function readOpened(socket: Socket, reader: SocketReader): boolean {
  const { _handle: handle } = socket as unknown as { _handle?: Handle | null };
  if (!isFast || ONREAD_PROPERTIES === undefined || Object.getPrototypeOf(socket) !== Socket.prototype) return false;
  if (typeof handle?.useUserBuffer !== "function") return false;
  Object.assign(socket, { [ONREAD_PROPERTIES.buffer]: buffer, [ONREAD_PROPERTIES.callback]: reader });
  handle.useUserBuffer(buffer);
  socket.resume();
  return true;
}

export function copied(bytes: Buffer): Buffer {
  const chunk = Buffer.allocUnsafe(bytes.length);
  chunk.set(bytes);
  return chunk;
}

/** Caches views of the buffer by length, because most reads are small and repeat the same sizes. */
const VIEWS: (Buffer | undefined)[] = new Array<Buffer | undefined>(2048).fill(undefined);

function bytesRead(size: number): Buffer {
  if (size >= VIEWS.length) return buffer.subarray(0, size);
  const known = VIEWS[size];
  if (known !== undefined) return known;
  const made = buffer.subarray(0, size);
  VIEWS[size] = made;
  return made;
}

/** Every socket stores its `onread` option in these properties. */
const ONREAD_PROPERTIES = findOnreadProperties(new Socket());

function findOnreadProperties(socket: Socket): { readonly buffer: symbol; readonly callback: symbol } | undefined {
  const find = (name: string): symbol | undefined =>
    Object.getOwnPropertySymbols(socket).find((symbol) => symbol.description === name);
  const buffer = find("kBuffer");
  const callback = find("kBufferCb");
  return buffer === undefined || callback === undefined || find("kBufferGen") === undefined
    ? undefined
    : { buffer, callback };
}
