/**
 * Admission of children: how many may live, and how many may be starting at one time. Starting a process costs
 * far more than running it, so a burst of sessions waits in line here, first come, first served, instead of fighting for
 * the CPU.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { Channel, ChannelHandlers } from "../transports/transport.ts";

/** SDKs give up after a minute. */
const MAX_WAIT_MS = 60_000;
/** A longer line would not be served in that time. */
const MAX_LINE = 1_000;

export interface ProcessLimits {
  readonly maxChildren: number;
  readonly maxChildrenPerClient: number;
  readonly maxConcurrentStarts: number;
}

export interface Slot {
  /** The child is ready, or will never be: the next one may start. */
  started(): void;
  /** A child that nobody waited for is this client's from now on. */
  belongsTo(client: string | undefined): void;
  /** The process is gone. */
  released(): void;
}

interface Waiting {
  /** Undefined for servers that all clients share. */
  readonly client: string | undefined;
  start(slot: Slot): void;
  refuse(reason: string): void;
  timer: Timer;
  /** Somebody was ended so that it can start: it is not refused meanwhile. */
  hasPromise: boolean;
}

/** Ends an idle session, of the client alone if `isOwn`; false if there is none. */
export type EvictIdle = (client: string | undefined, isOwn: boolean) => boolean;

export class ProcessLimiter {
  limits: ProcessLimits;
  readonly #clock: Clock;
  readonly #makeRoom: EvictIdle;
  readonly #waiting: Waiting[] = [];
  /** Children of each client, those that wait to be started included. */
  readonly #counts = new Map<string, number>();
  #living = 0;
  #starting = 0;

  constructor(limits: ProcessLimits, clock: Clock, makeRoom: EvictIdle) {
    this.limits = limits;
    this.#clock = clock;
    this.#makeRoom = makeRoom;
  }

  get living(): number {
    return this.#living;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Calls `start` now or as soon as there is room, or `refuse` if there will be none. Returns how to leave the line. */
  enter(client: string | undefined, start: (slot: Slot) => void, refuse: (reason: string) => void): () => void {
    // The process of an ended session is gone soon; until then the client has one more.
    if (!this.hasShare(client) && !this.#makeRoom(client, true)) {
      refuse(`the limit of ${this.limits.maxChildrenPerClient} child processes per client is reached`);
      return () => undefined;
    }
    if (this.#hasRoom()) {
      this.#count(client, 1);
      start(this.#take(client));
      return () => undefined;
    }
    const isFull = this.#isFull();
    if (isFull && !this.#makeRoom(client, false)) {
      refuse(this.#full());
      return () => undefined;
    }
    if (this.#waiting.length >= MAX_LINE) {
      refuse("too many child processes wait to be started");
      return () => undefined;
    }
    this.#count(client, 1);
    const waiting: Waiting = {
      client,
      start,
      refuse,
      timer: this.#clock.after(MAX_WAIT_MS, () => {
        leave();
        refuse("too many child processes are starting");
      }),
      hasPromise: isFull,
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

  /** A place for a child that nobody waits for: only where there is room, and nobody in line. */
  spare(): Slot | undefined {
    return this.#waiting.length === 0 && this.#hasRoom() ? this.#take(undefined) : undefined;
  }

  /** Whether the client may have one more child. */
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
    return this.#living >= this.limits.maxChildren;
  }

  #full(): string {
    return `the limit of ${this.limits.maxChildren} child processes is reached`;
  }

  #hasRoom(): boolean {
    return !this.#isFull() && this.#starting < this.limits.maxConcurrentStarts;
  }

  #take(client: string | undefined): Slot {
    this.#living += 1;
    this.#starting += 1;
    let isStarting = true;
    let isLiving = true;
    let owner = client;
    const started = (): void => {
      if (!isStarting) return;
      isStarting = false;
      this.#starting -= 1;
      this.#next();
    };
    return {
      started,
      belongsTo: (next) => {
        owner = next;
        if (isLiving) this.#count(owner, 1);
      },
      released: () => {
        if (!isLiving) return;
        isLiving = false;
        this.#living -= 1;
        this.#count(owner, -1);
        started();
        this.#next();
      },
    };
  }

  #next(): void {
    while (this.#hasRoom()) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      next.timer.cancel();
      next.start(this.#take(next.client));
    }
    if (this.#isFull()) this.#answerLine();
  }

  /** The last place was taken while others wait for it: they fare as who comes now does, instead of waiting in vain. */
  #answerLine(): void {
    for (const one of [...this.#waiting]) {
      if (one.hasPromise) continue;
      if (this.#makeRoom(one.client, false)) {
        one.hasPromise = true;
        continue;
      }
      const at = this.#waiting.indexOf(one);
      if (at < 0) continue;
      this.#waiting.splice(at, 1);
      this.#count(one.client, -1);
      one.timer.cancel();
      one.refuse(this.#full());
    }
  }
}

/** By then most programs are up: others may start. */
const START_MS = 2_000;

export interface SpareSlot {
  started(): void;
  belongsTo(client: string | undefined): void;
  released(): void;
}

export interface SpareEnv {
  readonly clock: Clock;
  /** A place for one more child; undefined if there is none now. */
  slot(): SpareSlot | undefined;
  open(handlers: ChannelHandlers, gone: () => void): Channel;
}

interface Spare {
  readonly channel: Channel;
  readonly slot: SpareSlot;
  readonly timer: Timer;
  adopted: ChannelHandlers | undefined;
}

export class SpareProcesses {
  readonly #count: number;
  readonly #env: SpareEnv;
  readonly #spares: Spare[] = [];
  #isClosed = false;

  constructor(count: number, env: SpareEnv) {
    this.#count = count;
    this.#env = env;
  }

  /** Starts what is missing, as far as there is room. */
  fill(): void {
    while (!this.#isClosed && this.#spares.length < this.#count) {
      const slot = this.#env.slot();
      if (slot === undefined) return;
      this.#spares.push(this.#start(slot));
    }
  }

  /** A child that runs already, which is the caller's now; undefined if there is none. */
  take(
    handlers: ChannelHandlers,
    client: string | undefined,
  ): { readonly channel: Channel; started(): void } | undefined {
    const spare = this.#spares.shift();
    if (spare === undefined) return undefined;
    spare.adopted = handlers;
    spare.slot.belongsTo(client);
    return {
      channel: spare.channel,
      started: () => {
        spare.timer.cancel();
        spare.slot.started();
        this.fill();
      },
    };
  }

  /** Ends one to make room for a child that somebody waits for. */
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

  #start(slot: SpareSlot): Spare {
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
      channel: this.#env.open(handlers, () => slot.released()),
      slot,
      timer: this.#env.clock.after(START_MS, () => slot.started()),
      adopted: undefined,
    };
    return spare;
  }
}

function end({ channel, timer }: Spare): void {
  timer.cancel();
  void channel.close();
}
