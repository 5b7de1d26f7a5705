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
  /** Reports that the process was told to exit, so that a request may wait for its slot. */
  ending(): void;
  released(): void;
}

interface Waiting {
  /** The client is undefined for servers that all clients share. */
  readonly client: string | undefined;
  start(slot: ProcessSlot): void;
  reject(reason: string): void;
  timer: Timer;
  /** True if this entry waits for the slot of an ending process, so it is not rejected while all slots are taken. */
  hasReservation: boolean;
}

interface ClientCounts {
  running: number;
  /** These processes are also running. */
  ending: number;
  waiting: number;
}

/** Ends an idle process and returns false if there is none. `isOwn` restricts the search to this client. */
export type EvictIdle = (client: string | undefined, isOwn: boolean) => boolean;

const NO_PROCESSES: Readonly<ClientCounts> = { running: 0, ending: 0, waiting: 0 };

export class ProcessLimiter {
  limits: ProcessLimits;
  readonly #clock: Clock;
  readonly #makeRoom: EvictIdle;
  readonly #waiting: Waiting[] = [];
  readonly #clients = new Map<string, ClientCounts>();
  #running = 0;
  #ending = 0;
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
   * Calls `start` immediately or when a slot is free. Calls `reject` if a limit is reached and no process is ending or
   * can be ended, the queue is full, or the wait times out. Returns a function that removes the request from the queue.
   */
  enter(client: string | undefined, start: (slot: ProcessSlot) => void, reject: (reason: string) => void): () => void {
    if (!this.#hasShareSoon(client) && !this.#makeRoom(client, true)) {
      reject(`the limit of ${this.limits.maxChildrenPerClient} child processes per client is reached`);
      return () => undefined;
    }
    if (this.#hasFreeSlot() && this.#mayRun(client)) {
      start(this.#take(client));
      return () => undefined;
    }
    const isFull = this.#isFull();
    if (isFull && !this.#canReserve(client)) {
      reject(this.#limitReached());
      return () => undefined;
    }
    if (this.#waiting.length >= MAX_QUEUED) {
      reject("too many child processes wait to be started");
      return () => undefined;
    }
    this.#count(client, "waiting", 1);
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
      this.#count(client, "waiting", -1);
    };
    this.#waiting.push(waiting);
    return leave;
  }

  /** Returns undefined if no slot is free or requests are queued. */
  spare(): ProcessSlot | undefined {
    return this.#waiting.length === 0 && this.#hasFreeSlot() ? this.#take(undefined) : undefined;
  }

  hasShare(client: string | undefined): boolean {
    const { running, waiting } = this.#countsOf(client);
    return running + waiting < this.limits.maxChildrenPerClient;
  }

  /** True if the client has a share when its ending processes have exited. */
  #hasShareSoon(client: string | undefined): boolean {
    const { running, ending, waiting } = this.#countsOf(client);
    return running - ending + waiting < this.limits.maxChildrenPerClient;
  }

  #mayRun(client: string | undefined): boolean {
    return this.#countsOf(client).running < this.limits.maxChildrenPerClient;
  }

  /** Returns zeros for servers that all clients share. */
  #countsOf(client: string | undefined): Readonly<ClientCounts> {
    return (client === undefined ? undefined : this.#clients.get(client)) ?? NO_PROCESSES;
  }

  #count(client: string | undefined, what: keyof ClientCounts, change: 1 | -1): void {
    if (client === undefined) return;
    const counts = this.#clients.get(client) ?? { ...NO_PROCESSES };
    counts[what] += change;
    if (counts.running + counts.waiting === 0) this.#clients.delete(client);
    else this.#clients.set(client, counts);
  }

  #isFull(): boolean {
    return this.#running >= this.limits.maxChildren;
  }

  #limitReached(): string {
    return `the limit of ${this.limits.maxChildren} child processes is reached`;
  }

  /** True if a process is ending whose slot nobody waits for yet, or an idle process could be ended. */
  #canReserve(client: string | undefined): boolean {
    const reserved = this.#waiting.filter(({ hasReservation }) => hasReservation).length;
    return reserved < this.#ending || this.#makeRoom(client, false);
  }

  #hasFreeSlot(): boolean {
    return !this.#isFull() && this.#starting < this.limits.maxConcurrentStarts;
  }

  #take(client: string | undefined): ProcessSlot {
    this.#running += 1;
    this.#starting += 1;
    this.#count(client, "running", 1);
    let isStarting = true;
    let isRunning = true;
    let isEnding = false;
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
        if (!isRunning) return;
        owner = next;
        this.#count(owner, "running", 1);
        if (isEnding) this.#count(owner, "ending", 1);
      },
      ending: () => {
        if (isEnding || !isRunning) return;
        isEnding = true;
        this.#ending += 1;
        this.#count(owner, "ending", 1);
      },
      released: () => {
        if (!isRunning) return;
        isRunning = false;
        if (isEnding) {
          this.#ending -= 1;
          this.#count(owner, "ending", -1);
        }
        this.#running -= 1;
        this.#count(owner, "running", -1);
        started();
        this.#next();
      },
    };
  }

  #next(): void {
    while (this.#hasFreeSlot()) {
      const at = this.#waiting.findIndex(({ client }) => this.#mayRun(client));
      const [next] = at < 0 ? [] : this.#waiting.splice(at, 1);
      if (next === undefined) break;
      next.timer.cancel();
      this.#count(next.client, "waiting", -1);
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
      if (this.#canReserve(one.client)) {
        one.hasReservation = true;
        continue;
      }
      const at = this.#waiting.indexOf(one);
      if (at < 0) continue;
      this.#waiting.splice(at, 1);
      this.#count(one.client, "waiting", -1);
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
  readonly #open: (handlers: ChannelHandlers, slot: ProcessSlot) => Channel;
  readonly #spares: Spare[] = [];
  #isClosed = false;

  constructor(
    count: number,
    limiter: ProcessLimiter,
    clock: Clock,
    open: (handlers: ChannelHandlers, slot: ProcessSlot) => Channel,
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
      channel: this.#open(handlers, slot),
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
