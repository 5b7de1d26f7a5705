/**
 * Sends messages between replicas over Redis. The bus receives on a separate connection, which opens with the first
 * channel. After a disconnect, the bus subscribes to all channels again, and messages sent in the meantime are lost.
 */
import type { Redis } from "ioredis";
import type { Clock, Timer } from "../base/clock.ts";
import { type Bus, type BusChannel, MAX_MESSAGE_BYTES } from "./store.ts";

/** Pings detect a dead connection, because an idle subscription receives no data. */
const PING_MS = 10_000;
const CHANNELS_PER_COMMAND = 500;

export interface BusEnv {
  readonly clock: Clock;
  readonly prefix: string;
  readonly timeoutMs: number;
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
    const connection = env.connection();
    redis = connection;
    connection.on("message", (channel: string, text: string) => {
      // The gateway publishes no larger messages, so such a message is from another program.
      if (Buffer.byteLength(text) > MAX_MESSAGE_BYTES) return;
      for (const receive of [...(listeners.get(channel) ?? [])]) receive(text);
    });
    connection.on("ready", () => void resubscribe(connection));
    // The store's main connection reports errors of Redis.
    connection.on("error", () => undefined);
    connection.connect().catch(() => undefined);
    pings = clock.every(PING_MS, () => {
      if (connection.status === "ready") connection.ping().catch(() => connection.disconnect(true));
    });
    return connection;
  }

  async function resubscribe(connection: Redis): Promise<void> {
    const channels = [...listeners.keys()];
    for (let at = 0; at < channels.length; at += CHANNELS_PER_COMMAND)
      await connection.subscribe(...channels.slice(at, at + CHANNELS_PER_COMMAND)).catch(() => undefined);
  }

  /**
   * Resolves when the subscription is active, has failed, or has timed out. A later reconnect subscribes again.
   */
  async function begin(connection: Redis, channel: string): Promise<void> {
    if (connection.status !== "ready") await readiness(connection);
    if (listeners.has(channel)) await connection.subscribe(channel).catch(() => undefined);
  }

  function readiness(connection: Redis): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel();
        connection.off("ready", done);
        resolve();
      };
      const timer = clock.after(timeoutMs, done);
      connection.once("ready", done);
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
      const connection = connected();
      const known = listeners.get(name);
      const all = known ?? new Set<Receiver>();
      // The wrapper makes registrations distinct, because the same function may be registered twice.
      const receiver: Receiver = (text) => receive(text);
      all.add(receiver);
      listeners.set(name, all);
      return {
        ready: known === undefined ? begin(connection, name) : Promise.resolve(),
        close() {
          if (!all.delete(receiver) || all.size > 0 || listeners.get(name) !== all) return;
          listeners.delete(name);
          if (connection.status === "ready") connection.unsubscribe(name).catch(() => undefined);
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
