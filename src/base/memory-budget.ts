/**
 * Limits the memory that clients can make the gateway retain: request bodies, MCP sessions, large messages of
 * servers, and streams whose peer does not read. While memory is short, `relieve` frees memory step by step.
 */

import type { Clock, Timer } from "./clock.ts";
import { ExpectedError } from "./errors.ts";
import { HEAP_LEVELS, type HeapLevel, oldGeneration, processMemory } from "./heap-pressure.ts";

/** A body is charged twice, for its bytes and for the string or objects created from it. */
const BODY_COPIES = 2;
/** Fits the largest documented body (LLM requests, 32 MiB), which is charged twice. */
const LARGEST_BODY_BYTES = 64 * 1024 * 1024;
const MESSAGE_COPIES = 3;
export const SMALL_MESSAGE_BYTES = 64 * 1024;
const CLIENT_SHARE = 0.5;
const SMALL_BODIES_SHARE = 0.25;
/** A body that waits longer for memory is rejected. */
const MAX_BODY_WAIT_MS = 10_000;
const MAX_STALL_MS = 10_000;
const STALL_CHECK_MS = 1_000;
const WAITING_LIMIT_FACTOR = 3;
const SMALL_BODY_BYTES = 64 * 1024;
const MIN_POOL_BYTES = 8 * 1024 * 1024;
const DEFAULT_CACHE_BYTES = 64 * 1024 * 1024;

export interface MemoryLimits {
  readonly bodyBytes: number;
  readonly sessionBytes: number;
  readonly streamBytes: number;
  readonly openStreamBytes: number;
  readonly messageBytes: number;
  readonly storeBytes: number;
  readonly cacheBytes: number;
}

/** Computes the pool limits from the memory of the process (or its container) and the heap of this thread. */
export function memoryLimits(processBytes: number, heapBytes: number, threads = 1): MemoryLimits {
  const part = (ofProcess: number, ofHeap: number): number =>
    Math.max(MIN_POOL_BYTES, Math.floor(Math.min((processBytes * ofProcess) / threads, heapBytes * ofHeap)));
  const storeBytes = part(0.08, 0.16);
  return {
    bodyBytes: Math.max(LARGEST_BODY_BYTES, part(0.15, 0.3)),
    sessionBytes: part(0.1, 0.2),
    streamBytes: part(0.08, Number.POSITIVE_INFINITY),
    openStreamBytes: part(0.1, 0.16),
    messageBytes: part(0.08, 0.12),
    storeBytes,
    cacheBytes: Math.min(DEFAULT_CACHE_BYTES, Math.floor(storeBytes / 2)),
  };
}

export function fittingMemoryLimits(flags: readonly string[], threads: number): MemoryLimits {
  return memoryLimits(processMemory()().limitBytes, oldGeneration(flags)().limitBytes, threads);
}

export class MemoryExhausted extends ExpectedError {
  constructor(message: string) {
    super(message);
    this.name = "MemoryExhausted";
  }
}

/** Counts bytes by client. Charges must be released in the same amounts. */
export class MemoryPool {
  readonly limitBytes: number;
  readonly clientLimitBytes: number;
  rejections = 0;
  #usedBytes = 0;
  readonly #clients = new Map<string, number>();

  constructor(limitBytes: number, clientLimitBytes = Math.ceil(limitBytes * CLIENT_SHARE)) {
    this.limitBytes = limitBytes;
    this.clientLimitBytes = clientLimitBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  get clients(): number {
    return this.#clients.size;
  }

  bytesOf(client: string): number {
    return this.#clients.get(client) ?? 0;
  }

  /** The first charge of a client may exceed its share. */
  fitsShare(client: string, bytes: number): boolean {
    const heldBytes = this.bytesOf(client);
    return heldBytes === 0 || heldBytes + bytes <= this.clientLimitBytes;
  }

  fits(client: string, bytes: number): boolean {
    return this.#usedBytes + bytes <= this.limitBytes && this.fitsShare(client, bytes);
  }

  /** Returns false and charges nothing if the bytes do not fit. */
  tryCharge(client: string, bytes: number): boolean {
    if (!this.fits(client, bytes)) {
      this.rejections += 1;
      return false;
    }
    this.charge(client, bytes);
    return true;
  }

  charge(client: string, bytes: number): void {
    this.#usedBytes += bytes;
    this.#clients.set(client, this.bytesOf(client) + bytes);
  }

  release(client: string, bytes: number): void {
    this.#usedBytes -= bytes;
    const left = this.bytesOf(client) - bytes;
    if (left > 0) this.#clients.set(client, left);
    else this.#clients.delete(client);
  }

  /** Returns the client with the most charged memory, or undefined if nothing is charged. */
  largest(): string | undefined {
    let largest: string | undefined;
    let mostBytes = 0;
    for (const [client, bytes] of this.#clients) {
      if (bytes <= mostBytes) continue;
      largest = client;
      mostBytes = bytes;
    }
    return largest;
  }
}

export class MemoryAccount {
  readonly client: string;
  readonly #pool: MemoryPool;
  #bytes = 0;
  #isClosed = false;

  constructor(pool: MemoryPool, client: string) {
    this.#pool = pool;
    this.client = client;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Returns false and charges nothing if the bytes do not fit or the account is closed. */
  tryGrow(bytes: number): boolean {
    if (this.#isClosed || !this.#pool.tryCharge(this.client, bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  shrink(bytes: number): void {
    if (this.#isClosed) return;
    this.#bytes -= bytes;
    this.#pool.release(this.client, bytes);
  }

  close(): void {
    if (this.#bytes > 0) this.#pool.release(this.client, this.#bytes);
    this.#bytes = 0;
    this.#isClosed = true;
  }
}

/** Selects the account of a client that is cut. In `accounts`, the one that has waited the longest is first. */
export type CutOrder = (accounts: ReadonlySet<StreamAccount>) => StreamAccount | undefined;

export function longestWaiting(accounts: ReadonlySet<StreamAccount>): StreamAccount | undefined {
  return accounts.values().next().value;
}

export function largestAccount(accounts: ReadonlySet<StreamAccount>): StreamAccount | undefined {
  let largest: StreamAccount | undefined;
  for (const account of accounts) if (largest === undefined || account.bytes > largest.bytes) largest = account;
  return largest;
}

/**
 * Limits memory that is already in use when it is charged, such as bytes that wait in stream buffers because a peer
 * does not read. It is charged even beyond the limit. Accounts are then cut in `cutOrder`, but a client's only account
 * may exceed its share, and the only account of all may exceed the limit.
 */
export class StreamPool extends MemoryPool {
  /** In each set, the stream that has waited the longest is first. */
  readonly #streams = new Map<string, Set<StreamAccount>>();
  readonly #cutOrder: CutOrder;
  #openStreams = 0;

  constructor(limitBytes: number, cutOrder: CutOrder = longestWaiting) {
    super(limitBytes);
    this.#cutOrder = cutOrder;
  }

  /** `cut` must close the stream. The pool has already released its charge. */
  open(client: string, cut: () => void): StreamAccount {
    return new StreamAccount(this, client, cut);
  }

  /** Charges bytes that do not belong to a stream. Streams are cut to make room for them. */
  override tryCharge(client: string, bytes: number): boolean {
    if (bytes > this.limitBytes || !this.fitsShare(client, bytes)) {
      this.rejections += 1;
      return false;
    }
    this.charge(client, bytes);
    while (this.usedBytes > this.limitBytes && this.cutLargest());
    if (this.usedBytes <= this.limitBytes) return true;
    this.release(client, bytes);
    this.rejections += 1;
    return false;
  }

  resize(account: StreamAccount, bytes: number): void {
    const { client } = account;
    const grownBytes = bytes - account.bytes;
    if (grownBytes === 0) return;
    account.bytes = bytes;
    if (grownBytes < 0) {
      this.release(client, -grownBytes);
      this.#remove(account);
      // The stream made progress, so it counts as the newest.
      if (bytes > 0) this.#add(account);
      return;
    }
    this.charge(client, grownBytes);
    this.#add(account);
    while (this.bytesOf(client) > this.clientLimitBytes && (this.#streams.get(client)?.size ?? 0) > 1)
      this.#cutFirst(client);
    while (this.usedBytes > this.limitBytes && this.#openStreams > 1 && this.cutLargest());
  }

  /** Cuts an account of the client that uses the most memory. Returns false if there is none. */
  cutLargest(): boolean {
    let largest: string | undefined;
    let mostBytes = 0;
    for (const client of this.#streams.keys()) {
      const bytes = this.bytesOf(client);
      if (bytes <= mostBytes) continue;
      largest = client;
      mostBytes = bytes;
    }
    if (largest !== undefined) this.#cutFirst(largest);
    return largest !== undefined;
  }

  #cutFirst(client: string): void {
    const accounts = this.#streams.get(client);
    const first = accounts && this.#cutOrder(accounts);
    if (first === undefined) return;
    this.rejections += 1;
    first.cut();
  }

  #add(account: StreamAccount): void {
    let streams = this.#streams.get(account.client);
    if (streams === undefined) {
      streams = new Set();
      this.#streams.set(account.client, streams);
    }
    if (streams.has(account)) return;
    streams.add(account);
    this.#openStreams += 1;
  }

  #remove(account: StreamAccount): void {
    const streams = this.#streams.get(account.client);
    if (streams?.delete(account) !== true) return;
    this.#openStreams -= 1;
    if (streams.size === 0) this.#streams.delete(account.client);
  }
}

export class StreamAccount {
  readonly client: string;
  bytes = 0;
  readonly #pool: StreamPool;
  readonly #cut: () => void;
  #isClosed = false;

  constructor(pool: StreamPool, client: string, cut: () => void) {
    this.#pool = pool;
    this.client = client;
    this.#cut = cut;
  }

  /** Sets the number of waiting bytes. The stream may be cut before this returns. */
  resize(bytes: number): void {
    if (!this.#isClosed) this.#pool.resize(this, bytes);
  }

  /** Releases the charge. The stream is not cut afterwards. */
  close(): void {
    if (this.#isClosed) return;
    this.#pool.resize(this, 0);
    this.#isClosed = true;
  }

  cut(): void {
    this.close();
    this.#cut();
  }
}

interface Waiter {
  readonly bytes: number;
  readonly timer: Timer;
  granted(): void;
}

/**
 * Limits the request bodies that are buffered. A reservation that is not granted within 10 s is rejected. A client that
 * uses little memory can displace unfinished bodies of clients that use more.
 */
export class BodyPool {
  readonly #clock: Clock;
  readonly #pool: MemoryPool;
  readonly #smallLimitBytes: number;
  #smallBytes = 0;
  #isPaused = false;
  #isMakingRoom = false;
  readonly #unfinished = new Set<BodyReservation>();
  readonly #waiting = new Map<BodyReservation, Waiter>();

  constructor(limitBytes: number, clock: Clock) {
    this.#clock = clock;
    this.#smallLimitBytes = Math.floor(limitBytes * SMALL_BODIES_SHARE);
    const sharedBytes = limitBytes - this.#smallLimitBytes;
    this.#pool = new MemoryPool(sharedBytes, Math.max(LARGEST_BODY_BYTES, Math.ceil(sharedBytes * CLIENT_SHARE)));
  }

  get limitBytes(): number {
    return this.#pool.limitBytes + this.#smallLimitBytes;
  }

  get usedBytes(): number {
    return this.#pool.usedBytes + this.#smallBytes;
  }

  get rejections(): number {
    return this.#pool.rejections;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  bytesOf(client: string): number {
    return this.#pool.bytesOf(client);
  }

  /**
   * Charges a small body that has already arrived. Returns false if it needs a reservation. Release it with
   * `releaseSmall`.
   */
  holdSmall(bytes: number): boolean {
    if (this.#smallBytes + bytes > this.#smallLimitBytes) return false;
    this.#smallBytes += bytes;
    return true;
  }

  releaseSmall(bytes: number): void {
    this.#smallBytes -= bytes;
  }

  open(client: string): BodyReservation {
    const reservation = new BodyReservation(client, this);
    this.#unfinished.add(reservation);
    return reservation;
  }

  set isPaused(isPaused: boolean) {
    this.#isPaused = isPaused;
    if (!isPaused) this.#admitWaiting();
  }

  /** Rejects the newest unfinished body of the client that uses the most memory. Returns false if there is none. */
  rejectLargest(): boolean {
    return this.#reject(this.#candidates(0), 1) > 0;
  }

  reserve(reservation: BodyReservation, bytes: number, granted: () => void): void {
    if (this.#mayReserve(reservation, bytes) && this.#makeRoom(reservation, bytes)) {
      this.#grant(reservation, bytes, granted);
      if (this.#waiting.size > 0) this.#admitWaiting();
      return;
    }
    const timer = this.#clock.after(MAX_BODY_WAIT_MS, () => reservation.reject());
    this.#waiting.set(reservation, { bytes, timer, granted });
  }

  countRejection(): void {
    this.#pool.rejections += 1;
  }

  free(reservation: BodyReservation, bytes: number, isOver: boolean): void {
    if (bytes > 0) this.#pool.release(reservation.client, bytes);
    if (isOver) {
      this.#unfinished.delete(reservation);
      this.#waiting.get(reservation)?.timer.cancel();
      this.#waiting.delete(reservation);
    }
    if (this.#waiting.size > 0 && !this.#isMakingRoom) this.#admitWaiting();
  }

  /** Called by the reservation when the body has arrived. It can then no longer be displaced. */
  finished(reservation: BodyReservation): void {
    this.#unfinished.delete(reservation);
  }

  #mayReserve({ client, chargedBytes }: BodyReservation, bytes: number): boolean {
    if (this.#isPaused && chargedBytes + bytes > SMALL_BODY_BYTES * BODY_COPIES) return false;
    // The only body of a client always fits its share, even if it grows.
    return this.#pool.bytesOf(client) === chargedBytes || this.#pool.fitsShare(client, bytes);
  }

  #hasRoom(bytes: number): boolean {
    return this.#pool.usedBytes === 0 || this.#pool.usedBytes + bytes <= this.#pool.limitBytes;
  }

  #makeRoom(reservation: BodyReservation, bytes: number): boolean {
    const { client, chargedBytes } = reservation;
    if (this.#pool.usedBytes === chargedBytes || this.#hasRoom(bytes)) return true;
    const missingBytes = this.#pool.usedBytes + bytes - this.#pool.limitBytes;
    // Prevents waiting bodies from taking the freed memory.
    this.#isMakingRoom = true;
    this.#reject(this.#candidates(this.#pool.bytesOf(client) + bytes), missingBytes);
    this.#isMakingRoom = false;
    return this.#hasRoom(bytes);
  }

  /**
   * Returns unfinished bodies of clients that hold more than `bytes`. The client with the most memory comes first, with
   * its newest body first.
   */
  #candidates(bytes: number): BodyReservation[] {
    return [...this.#unfinished]
      .filter(({ client, chargedBytes }) => chargedBytes > 0 && this.#pool.bytesOf(client) > bytes)
      .reverse()
      .sort((a, b) => this.#pool.bytesOf(b.client) - this.#pool.bytesOf(a.client));
  }

  /** Rejects as many bodies as needed, or none if all of them together are not enough. */
  #reject(candidates: readonly BodyReservation[], bytes: number): number {
    const rejected: BodyReservation[] = [];
    let freedBytes = 0;
    for (const candidate of candidates) {
      if (freedBytes >= bytes) break;
      rejected.push(candidate);
      freedBytes += candidate.chargedBytes;
    }
    if (freedBytes < bytes) return 0;
    for (const reservation of rejected) reservation.reject();
    return rejected.length;
  }

  #grant(reservation: BodyReservation, bytes: number, granted: () => void): void {
    this.#pool.charge(reservation.client, bytes);
    reservation.chargedBytes += bytes;
    granted();
  }

  /**
   * A body that waits for the pool keeps its place in the queue. A body that waits for its own client's share can be
   * overtaken.
   */
  #admitWaiting(): void {
    for (const [reservation, { bytes, timer, granted }] of [...this.#waiting]) {
      if (!this.#waiting.has(reservation) || !this.#mayReserve(reservation, bytes)) continue;
      if (this.#pool.usedBytes !== reservation.chargedBytes && !this.#hasRoom(bytes)) return;
      timer.cancel();
      this.#waiting.delete(reservation);
      this.#grant(reservation, bytes, granted);
    }
  }
}

export class BodyReservation {
  readonly client: string;
  chargedBytes = 0;
  readonly #pool: BodyPool;
  #isOver = false;
  #isFinished = false;
  #rejected: ((error: MemoryExhausted) => void) | undefined = undefined;

  constructor(client: string, pool: BodyPool) {
    this.client = client;
    this.#pool = pool;
  }

  /**
   * Reserves memory for a body of this total length or length so far. `granted` is called immediately or later, unless
   * the reservation is released or rejected. `rejected` is called if memory is not available in time, or if the pool
   * rejects the unfinished body to free memory.
   */
  reserve(bodyBytes: number, granted: () => void, rejected: (error: MemoryExhausted) => void): void {
    if (this.#isOver) return;
    this.#rejected = rejected;
    const bytes = bodyBytes * BODY_COPIES - this.chargedBytes;
    if (bytes <= 0) granted();
    else this.#pool.reserve(this, bytes, granted);
  }

  finish(): void {
    this.#isFinished = true;
    this.#rejected = undefined;
    this.#pool.finished(this);
  }

  /** Releases the charge for copies, so that only the body itself stays charged. */
  dropCopies(): void {
    if (!this.#isFinished || this.#isOver) return;
    const bytes = this.chargedBytes - Math.ceil(this.chargedBytes / BODY_COPIES);
    this.chargedBytes -= bytes;
    this.#pool.free(this, bytes, false);
  }

  release(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const bytes = this.chargedBytes;
    this.chargedBytes = 0;
    this.#pool.free(this, bytes, true);
  }

  reject(): void {
    const rejected = this.#rejected;
    this.#pool.countRejection();
    this.release();
    rejected?.(new MemoryExhausted("there is no memory for the body of the request"));
  }
}

/**
 * Limits large messages of servers while they arrive and are parsed. A message that does not fit is not read further,
 * which applies backpressure to its server. The oldest message does not wait, so that messages cannot block each other.
 */
export class MessagePool {
  readonly limitBytes: number;
  readonly #clock: Clock;
  #usedBytes = 0;
  #heldBytes = 0;
  readonly #reservations = new Set<MessageReservation>();
  readonly #servers = new Set<ServerMessages>();
  #waiting = 0;
  #timer: Timer | undefined = undefined;

  constructor(limitBytes: number, clock: Clock) {
    this.limitBytes = limitBytes;
    this.#clock = clock;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  get isAnyWaiting(): boolean {
    return this.#waiting > 0;
  }

  server(): ServerMessages {
    return new ServerMessages(this);
  }

  add(reservation: MessageReservation): void {
    this.#reservations.add(reservation);
    this.#servers.add(reservation.server);
    reservation.server.reservations += 1;
    reservation.progressed(this.#clock.monotonicMs());
  }

  resize(reservation: MessageReservation, bytes: number): boolean {
    this.#charge(reservation, bytes);
    if (bytes < 0 || reservation.grownBytes >= SMALL_MESSAGE_BYTES * MESSAGE_COPIES)
      reservation.progressed(this.#clock.monotonicMs());
    this.#setWaiting(reservation, !this.#mayGoOn(reservation));
    if (bytes < 0) this.#resumeWaiting();
    else this.#rejectExcess();
    return !reservation.isWaiting;
  }

  remove(reservation: MessageReservation): void {
    const { server } = reservation;
    this.#setWaiting(reservation, false);
    this.#charge(reservation, -reservation.chargedBytes);
    this.#reservations.delete(reservation);
    server.reservations -= 1;
    if (server.reservations === 0) this.#servers.delete(server);
    this.#resumeWaiting();
  }

  /** Charges a complete message while another service checks it. Returns false if there is no room for it. */
  hold(server: ServerMessages, bytes: number): boolean {
    if (this.#heldBytes > 0 && this.#heldBytes + bytes > this.limitBytes) return false;
    this.#addHeld(server, bytes);
    return true;
  }

  releaseHeld(server: ServerMessages, bytes: number): void {
    this.#addHeld(server, -bytes);
    this.#resumeWaiting();
  }

  #addHeld(server: ServerMessages, bytes: number): void {
    this.#heldBytes += bytes;
    server.bytes += bytes;
    this.#usedBytes += bytes;
  }

  #charge(reservation: MessageReservation, bytes: number): void {
    reservation.chargedBytes += bytes;
    reservation.server.bytes += bytes;
    this.#usedBytes += bytes;
  }

  #setWaiting(reservation: MessageReservation, isWaiting: boolean): void {
    if (reservation.isWaiting === isWaiting) return;
    reservation.isWaiting = isWaiting;
    reservation.server.waiting += isWaiting ? 1 : -1;
    this.#waiting += isWaiting ? 1 : -1;
    reservation.progressed(this.#clock.monotonicMs());
    if (this.#waiting > 0) this.#timer ??= this.#clock.every(STALL_CHECK_MS, () => this.#rejectStalled());
    else {
      this.#timer?.cancel();
      this.#timer = undefined;
    }
  }

  get #oldest(): MessageReservation | undefined {
    return this.#reservations.values().next().value;
  }

  get #shareBytes(): number {
    return Math.floor(this.limitBytes / Math.max(1, this.#servers.size));
  }

  /** The bytes of the oldest message above a server's share are not counted. */
  get #uncountedBytes(): number {
    return Math.max(0, (this.#oldest?.chargedBytes ?? 0) - this.#shareBytes);
  }

  #isAboveShare(server: ServerMessages): boolean {
    const uncountedBytes = this.#oldest?.server === server ? this.#uncountedBytes : 0;
    return server.bytes - uncountedBytes > this.#shareBytes;
  }

  #mayGoOn(reservation: MessageReservation): boolean {
    if (reservation === this.#oldest) return true;
    if (this.#usedBytes - this.#uncountedBytes > this.limitBytes) return false;
    const doOthersWait = this.#waiting > reservation.server.waiting;
    return !doOthersWait || !this.#isAboveShare(reservation.server);
  }

  /** Resumes the messages that may continue, the oldest first. */
  #resumeWaiting(): void {
    while (this.#waiting > 0) {
      const next = [...this.#reservations].find((reservation) => reservation.isWaiting && this.#mayGoOn(reservation));
      if (next === undefined) return;
      this.#setWaiting(next, false);
      next.resume();
    }
  }

  #rejectStalled(): void {
    const beforeMs = this.#clock.monotonicMs() - MAX_STALL_MS;
    for (const reservation of [...this.#reservations]) {
      if (this.#waiting === 0) return;
      if (!reservation.isWaiting && !reservation.isReceived && reservation.progressedAtMs <= beforeMs)
        reservation.reject("stalled");
    }
    for (const reservation of [...this.#reservations])
      if (reservation.isWaiting && reservation.progressedAtMs <= beforeMs && !this.#isAboveShare(reservation.server))
        this.#makeRoom(reservation);
  }

  /** Rejects the newest incomplete messages, but not the oldest one, while the total charge is far above the limit. */
  #rejectExcess(): void {
    if (this.#usedBytes - this.#uncountedBytes <= this.limitBytes * WAITING_LIMIT_FACTOR) return;
    for (const reservation of [...this.#reservations].reverse()) {
      if (this.#usedBytes - this.#uncountedBytes <= this.limitBytes * WAITING_LIMIT_FACTOR) return;
      if (reservation !== this.#oldest && !reservation.isReceived) reservation.reject("excess");
    }
  }

  /** Rejects messages of servers above their share, starting with the newest message of the largest server. */
  #makeRoom(waiting: MessageReservation): void {
    while (waiting.isWaiting) {
      let rejected: MessageReservation | undefined;
      for (const reservation of this.#reservations) {
        if (reservation === this.#oldest || reservation.isReceived || !this.#isAboveShare(reservation.server)) continue;
        if (rejected === undefined || reservation.server.bytes >= rejected.server.bytes) rejected = reservation;
      }
      if (rejected === undefined) return;
      rejected.reject("stalled");
    }
  }
}

export type MessageRejection = "stalled" | "excess";

export interface MessageReservationHandlers {
  resume(): void;
  reject(cause: MessageRejection): void;
}

export class ServerMessages {
  bytes = 0;
  reservations = 0;
  waiting = 0;
  readonly #pool: MessagePool;

  constructor(pool: MessagePool) {
    this.#pool = pool;
  }

  open(handlers: MessageReservationHandlers): MessageReservation {
    const reservation = new MessageReservation(this.#pool, this, handlers);
    this.#pool.add(reservation);
    return reservation;
  }

  /**
   * Holds a complete message while another service checks it. The result releases it and must be called once. It is
   * undefined if too many messages wait, so that this one must be rejected.
   */
  hold(messageBytes: number): (() => void) | undefined {
    const bytes = messageBytes * MESSAGE_COPIES;
    return this.#pool.hold(this, bytes) ? () => this.#pool.releaseHeld(this, bytes) : undefined;
  }
}

export class MessageReservation {
  readonly server: ServerMessages;
  isWaiting = false;
  chargedBytes = 0;
  progressedAtMs = 0;
  isReceived = false;
  readonly #pool: MessagePool;
  readonly #handlers: MessageReservationHandlers;
  #progressBytes = 0;
  #isOver = false;

  constructor(pool: MessagePool, server: ServerMessages, handlers: MessageReservationHandlers) {
    this.#pool = pool;
    this.server = server;
    this.#handlers = handlers;
  }

  get grownBytes(): number {
    return this.chargedBytes - this.#progressBytes;
  }

  progressed(nowMs: number): void {
    this.progressedAtMs = nowMs;
    this.#progressBytes = this.chargedBytes;
  }

  /** Sets the size of the message so far. Returns false if reading must pause until `resume`. */
  resize(messageBytes: number): boolean {
    return this.#isOver || this.#pool.resize(this, messageBytes * MESSAGE_COPIES - this.chargedBytes);
  }

  /** Marks the message as complete, after which it is not rejected. */
  received(): void {
    this.isReceived = true;
  }

  release(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#pool.remove(this);
  }

  resume(): void {
    this.#handlers.resume();
  }

  reject(cause: MessageRejection): void {
    this.release();
    this.#handlers.reject(cause);
  }
}

export interface Reclaimer {
  /** For sessions, `largest` is the client that uses the most memory, if any. Returns whether anything was freed. */
  reclaim(largest: string | undefined): boolean;
}

export class MemoryBudget {
  readonly limits: MemoryLimits;
  readonly bodies: BodyPool;
  readonly sessions: MemoryPool;
  readonly streams: StreamPool;
  /** Charges open HTTP/2 streams to one account per connection and client, so that large connections are cut first. */
  readonly openStreams: StreamPool;
  readonly messages: MessagePool;
  /** Shares the memory level of this thread with the other threads of the process. */
  readonly sharedLevel = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  readonly #level = new Int32Array(this.sharedLevel);
  readonly #caches = new Set<Reclaimer>();
  readonly #sessionHolders = new Set<Reclaimer>();

  constructor(limits: MemoryLimits, clock: Clock) {
    this.limits = limits;
    this.bodies = new BodyPool(limits.bodyBytes, clock);
    this.sessions = new MemoryPool(limits.sessionBytes);
    this.streams = new StreamPool(limits.streamBytes);
    this.openStreams = new StreamPool(limits.openStreamBytes, largestAccount);
    this.messages = new MessagePool(limits.messageBytes, clock);
  }

  /** Returns a function that unregisters the reclaimer. */
  onShortage(of: "cache" | "sessions", reclaimer: Reclaimer): () => void {
    const reclaimers = of === "cache" ? this.#caches : this.#sessionHolders;
    reclaimers.add(reclaimer);
    return () => void reclaimers.delete(reclaimer);
  }

  /** Takes one step per call, because the next measurement shows whether that was enough. */
  relieve(level: HeapLevel): void {
    Atomics.store(this.#level, 0, HEAP_LEVELS.indexOf(level));
    this.bodies.isPaused = level !== "normal";
    if (level === "normal" || reclaimFrom(this.#caches, undefined) || this.reclaimSessions()) return;
    if (level !== "full" || this.bodies.rejectLargest()) return;
    if (this.streams.usedBytes >= this.openStreams.usedBytes) this.streams.cutLargest();
    else this.openStreams.cutLargest();
  }

  /** Ends idle sessions, preferably those of the client with the most memory. Returns whether anything was freed. */
  reclaimSessions(): boolean {
    return reclaimFrom(this.#sessionHolders, this.sessions.largest());
  }
}

/** Uses the limits of a machine with 4 GiB, unless `limits` overrides them. */
export function createMemoryBudget(clock: Clock, limits: Partial<MemoryLimits> = {}): MemoryBudget {
  return new MemoryBudget({ ...memoryLimits(2 ** 32, 2 ** 31), ...limits }, clock);
}

function reclaimFrom(reclaimers: ReadonlySet<Reclaimer>, largest: string | undefined): boolean {
  let isAnyFreed = false;
  for (const reclaimer of reclaimers) if (reclaimer.reclaim(largest)) isAnyFreed = true;
  return isAnyFreed;
}
