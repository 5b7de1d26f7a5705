/**
 * Messages between replicas over Redis. Whoever listens has a connection for it, made with the first channel; after a break
 * all channels are listened to again, and what was sent meanwhile is lost: senders learn how many heard them.
 */
import type { Redis } from "ioredis";
import type { Clock, Timer } from "../base/clock.ts";
import { type Bus, type BusChannel, MAX_MESSAGE_BYTES } from "./store.ts";

/** A connection that is silent because nobody sends anything looks like one that is dead. */
const PING_MS = 10_000;
/** Channels that are named in one command after a break. */
const CHANNELS_AT_ONCE = 500;

export interface BusEnv {
  readonly clock: Clock;
  readonly prefix: string;
  readonly timeoutMs: number;
  /** A connection of its own, not yet open; it connects again by itself. */
  connection(): Redis;
  publish(channel: string, text: string): Promise<number>;
}

export interface ClosableBus extends Bus {
  close(): void;
}

type Heard = (text: string) => void;

export function createRedisBus(env: BusEnv): ClosableBus {
  const { clock, prefix, timeoutMs } = env;
  const listeners = new Map<string, Set<Heard>>();
  let redis: Redis | undefined;
  let pings: Timer | undefined;

  function connected(): Redis {
    if (redis !== undefined) return redis;
    const own = env.connection();
    redis = own;
    own.on("message", (channel: string, text: string) => {
      for (const heard of [...(listeners.get(channel) ?? [])]) heard(text);
    });
    own.on("ready", () => void listenAgain(own));
    // The store's own connection tells what is wrong with Redis.
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

  /** Resolves when Redis knows of it, or after the time limit: it is told when it is back. */
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
    listen(channel, heard): BusChannel {
      const name = prefix + channel;
      const own = connected();
      const known = listeners.get(name);
      const all = known ?? new Set<Heard>();
      // The same function may listen twice: each time counts.
      const one: Heard = (text) => heard(text);
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
