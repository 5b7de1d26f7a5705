/**
 * Limits child processes and starts spare processes before they are needed.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { Channel, ChannelHandlers } from "../transports/transport.ts";

/** Equals the default request timeout of the official SDKs. */
const MAX_WAIT_MS = 60_000;
const MAX_QUEUED = 1_000;

export interface ProcessLimits {
  readonly maxChildren: number;
  readonly maxChildrenPerClient: number;
  readonly maxConcurrentStarts: number;
}

export interface ProcessSlot {
  /** Reports that the process is ready or has failed, so that the next process may start. */
  started(): void;
  assignTo(client: string | undefined): void;
  released(): void;
}

interface Waiting {
  /** The client is undefined for servers that all clients share. */
  readonly client: string | undefined;
  start(slot: ProcessSlot): void;
  reject(reason: string): void;
  timer: Timer;
  /** True if a process was evicted for this entry, so it is not rejected while all slots are taken. */
  hasReservation: boolean;
}

/** Frees a process slot and returns false if none can be freed. `isOwn` restricts the search to this client. */
export type EvictIdle = (client: string | undefined, isOwn: boolean) => boolean;

export class ProcessLimiter {
  limits: ProcessLimits;
  readonly #clock: Clock;
  readonly #makeRoom: EvictIdle;
  readonly #waiting: Waiting[] = [];
  readonly #counts = new Map<string, number>();
  #running = 0;
  #starting = 0;

  constructor(limits: ProcessLimits, clock: Clock, makeRoom: EvictIdle) {
    this.limits = limits;
    this.#clock = clock;
    this.#makeRoom = makeRoom;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /**
   * Calls `start` immediately or when a slot is free. Calls `reject` if a limit is reached and no slot can be freed,
   * the queue is full, or the wait times out. Returns a function that removes the request from the queue.
   */
  enter(client: string | undefined, start: (slot: ProcessSlot) => void, reject: (reason: string) => void): () => void {
    // The client may exceed its limit by one until the process of the evicted session exits.
    if (!this.hasShare(client) && !this.#makeRoom(client, true)) {
      reject(`the limit of ${this.limits.maxChildrenPerClient} child processes per client is reached`);
      return () => undefined;
    }
    if (this.#hasFreeSlot()) {
      this.#count(client, 1);
      start(this.#take(client));
      return () => undefined;
    }
    const isFull = this.#isFull();
    if (isFull && !this.#makeRoom(client, false)) {
      reject(this.#limitReached());
      return () => undefined;
    }
    if (this.#waiting.length >= MAX_QUEUED) {
      reject("too many child processes wait to be started");
      return () => undefined;
    }
    this.#count(client, 1);
    const waiting: Waiting = {
      client,
      start,
      reject,
      timer: this.#clock.after(MAX_WAIT_MS, () => {
        leave();
        reject("too many child processes are starting");
      }),
      hasReservation: isFull,
    };
    const leave = (): void => {
      waiting.timer.cancel();
      const at = this.#waiting.indexOf(waiting);
      if (at < 0) return;
      this.#waiting.splice(at, 1);
      this.#count(client, -1);
    };
    this.#waiting.push(waiting);
    return leave;
  }

  /** Returns undefined if no slot is free or requests are queued. */
  spare(): ProcessSlot | undefined {
    return this.#waiting.length === 0 && this.#hasFreeSlot() ? this.#take(undefined) : undefined;
  }

  hasShare(client: string | undefined): boolean {
    return client === undefined || this.#countOf(client) < this.limits.maxChildrenPerClient;
  }

  #countOf(client: string): number {
    return this.#counts.get(client) ?? 0;
  }

  #count(client: string | undefined, change: 1 | -1): void {
    if (client === undefined) return;
    const count = this.#countOf(client) + change;
    if (count > 0) this.#counts.set(client, count);
    else this.#counts.delete(client);
  }

  #isFull(): boolean {
    return this.#running >= this.limits.maxChildren;
  }

  #limitReached(): string {
    return `the limit of ${this.limits.maxChildren} child processes is reached`;
  }

  #hasFreeSlot(): boolean {
    return !this.#isFull() && this.#starting < this.limits.maxConcurrentStarts;
  }

  #take(client: string | undefined): ProcessSlot {
    this.#running += 1;
    this.#starting += 1;
    let isStarting = true;
    let isRunning = true;
    let owner = client;
    const started = (): void => {
      if (!isStarting) return;
      isStarting = false;
      this.#starting -= 1;
      this.#next();
    };
    return {
      started,
      assignTo: (next) => {
        owner = next;
        if (isRunning) this.#count(owner, 1);
      },
      released: () => {
        if (!isRunning) return;
        isRunning = false;
        this.#running -= 1;
        this.#count(owner, -1);
        started();
        this.#next();
      },
    };
  }

  #next(): void {
    while (this.#hasFreeSlot()) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      next.timer.cancel();
      next.start(this.#take(next.client));
    }
    if (this.#isFull()) this.#rejectQueued();
  }

  /**
   * Applies when all slots are taken. Queued requests without a reservation try to free a slot or are rejected, like
   * new requests.
   */
  #rejectQueued(): void {
    for (const one of [...this.#waiting]) {
      if (one.hasReservation) continue;
      if (this.#makeRoom(one.client, false)) {
        one.hasReservation = true;
        continue;
      }
      const at = this.#waiting.indexOf(one);
      if (at < 0) continue;
      this.#waiting.splice(at, 1);
      this.#count(one.client, -1);
      one.timer.cancel();
      one.reject(this.#limitReached());
    }
  }
}

/** Most programs have started after this time, so other processes may start. */
const START_MS = 2_000;

interface Spare {
  readonly channel: Channel;
  readonly slot: ProcessSlot;
  readonly timer: Timer;
  adopted: ChannelHandlers | undefined;
}

/**
 * Manages processes that start before a session needs them. A spare that exits is not replaced at once, so that a
 * broken program is not restarted in a loop.
 */
export class SpareProcesses {
  readonly #count: number;
  readonly #limiter: ProcessLimiter;
  readonly #clock: Clock;
  readonly #open: (handlers: ChannelHandlers, gone: () => void) => Channel;
  readonly #spares: Spare[] = [];
  #isClosed = false;

  constructor(
    count: number,
    limiter: ProcessLimiter,
    clock: Clock,
    open: (handlers: ChannelHandlers, gone: () => void) => Channel,
  ) {
    this.#count = count;
    this.#limiter = limiter;
    this.#clock = clock;
    this.#open = open;
  }

  fill(): void {
    while (!this.#isClosed && this.#spares.length < this.#count) {
      const slot = this.#limiter.spare();
      if (slot === undefined) return;
      this.#spares.push(this.#start(slot));
    }
  }

  take(
    handlers: ChannelHandlers,
    client: string | undefined,
  ): { readonly channel: Channel; started(): void } | undefined {
    const spare = this.#spares.shift();
    if (spare === undefined) return undefined;
    spare.adopted = handlers;
    spare.slot.assignTo(client);
    return {
      channel: spare.channel,
      started: () => {
        spare.timer.cancel();
        spare.slot.started();
        this.fill();
      },
    };
  }

  drop(): boolean {
    const spare = this.#spares.pop();
    if (spare === undefined) return false;
    end(spare);
    return true;
  }

  close(): void {
    this.#isClosed = true;
    for (const spare of this.#spares.splice(0)) end(spare);
  }

  #start(slot: ProcessSlot): Spare {
    const handlers: ChannelHandlers = {
      message: (message: ServerMessage, about) => spare.adopted?.message(message, about),
      failed: (wireId, reason, error) => spare.adopted?.failed(wireId, reason, error),
      expired: (wireId) => spare.adopted?.expired(wireId),
      closed: (reason) => {
        const at = this.#spares.indexOf(spare);
        if (at >= 0) this.#spares.splice(at, 1);
        spare.timer.cancel();
        spare.adopted?.closed(reason);
      },
    };
    const spare: Spare = {
      channel: this.#open(handlers, () => slot.released()),
      slot,
      timer: this.#clock.after(START_MS, () => slot.started()),
      adopted: undefined,
    };
    return spare;
  }
}

function end({ channel, timer }: Spare): void {
  timer.cancel();
  void channel.close();
}
