/**
 * Sends messages between replicas over Redis. The bus receives on a separate connection, which opens with the first
 * channel. After a disconnect, the bus subscribes to all channels again, and messages sent in the meantime are lost.
 */
import type { Redis } from "ioredis";
import type { Clock, Timer } from "../base/clock.ts";
import { type Bus, type BusChannel, MAX_MESSAGE_BYTES } from "./store.ts";

/** Pings distinguish an idle connection from a dead one. */
const PING_MS = 10_000;
const CHANNELS_AT_ONCE = 500;

export interface BusEnv {
  readonly clock: Clock;
  readonly prefix: string;
  readonly timeoutMs: number;
  /** Returns a separate connection that is not open yet and reconnects automatically. */
  connection(): Redis;
  publish(channel: string, text: string): Promise<number>;
}

export interface ClosableBus extends Bus {
  close(): void;
}

type Receiver = (text: string) => void;

export function createRedisBus(env: BusEnv): ClosableBus {
  const { clock, prefix, timeoutMs } = env;
  const listeners = new Map<string, Set<Receiver>>();
  let redis: Redis | undefined;
  let pings: Timer | undefined;

  function connected(): Redis {
    if (redis !== undefined) return redis;
    const own = env.connection();
    redis = own;
    own.on("message", (channel: string, text: string) => {
      for (const receive of [...(listeners.get(channel) ?? [])]) receive(text);
    });
    own.on("ready", () => void listenAgain(own));
    // The store's main connection reports errors of Redis.
    own.on("error", () => undefined);
    own.connect().catch(() => undefined);
    pings = clock.every(PING_MS, () => {
      if (own.status === "ready") own.ping().catch(() => own.disconnect(true));
    });
    return own;
  }

  async function listenAgain(own: Redis): Promise<void> {
    const channels = [...listeners.keys()];
    for (let at = 0; at < channels.length; at += CHANNELS_AT_ONCE)
      await own.subscribe(...channels.slice(at, at + CHANNELS_AT_ONCE)).catch(() => undefined);
  }

  /**
   * Resolves when the subscription is active or the timeout has passed. A later reconnect activates the subscription.
   */
  async function begin(own: Redis, channel: string): Promise<void> {
    if (own.status !== "ready") await readiness(own);
    if (listeners.has(channel)) await own.subscribe(channel).catch(() => undefined);
  }

  function readiness(own: Redis): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        own.off("ready", done);
        resolve();
      };
      const timer = clock.after(timeoutMs, done);
      own.once("ready", done);
    });
  }

  return {
    async publish(channel, text) {
      if (Buffer.byteLength(text) > MAX_MESSAGE_BYTES)
        throw new RangeError(`a message to other replicas has at most ${MAX_MESSAGE_BYTES} bytes`);
      return env.publish(prefix + channel, text);
    },
    listen(channel, receive): BusChannel {
      const name = prefix + channel;
      const own = connected();
      const known = listeners.get(name);
      const all = known ?? new Set<Receiver>();
      // The wrapper makes registrations distinct, because the same function may be registered twice.
      const one: Receiver = (text) => receive(text);
      all.add(one);
      listeners.set(name, all);
      return {
        ready: known === undefined ? begin(own, name) : Promise.resolve(),
        close() {
          if (!all.delete(one) || all.size > 0 || listeners.get(name) !== all) return;
          listeners.delete(name);
          if (own.status === "ready") own.unsubscribe(name).catch(() => undefined);
        },
      };
    },
    close() {
      pings?.cancel();
      listeners.clear();
      redis?.disconnect();
    },
  };
}
