/**
 * Children that are started before anybody asks for them, so that a session does not wait for the start of a process.
 * Nothing was said to a spare and it was told of no user: whoever comes next may have it. One that ends by itself is
 * not replaced until the next session is opened, so that a program that does not run is not started over and over.
 */
import type { Clock, Timer } from "../../base/clock.ts";
import type { ServerMessage } from "../protocol/json-rpc.ts";
import type { Channel, ChannelHandlers } from "./channel.ts";

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

export class SpareChannels {
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
