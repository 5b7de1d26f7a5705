/**
 * Sends messages between the processes of an in-place upgrade over the channel between them. Without another process,
 * nothing is sent. The main thread relays messages between its worker threads and the other process.
 */
import type { Bus, BusChannel } from "./store.ts";

export type BusMessage =
  | { readonly type: "bus message"; readonly id: number; readonly channel: string; readonly text: string }
  | { readonly type: "bus receipt"; readonly id: number; readonly receivers: number };

export interface BusPeer {
  received(message: BusMessage): void;
  close(): void;
}

export interface ProcessBus extends Bus {
  /** While `isActive` returns false, nothing is sent to the peer. */
  connect(send: (message: BusMessage) => void, isActive?: () => boolean): BusPeer;
}

type Receiver = (text: string) => void;

const READY = Promise.resolve();

export function createProcessBus(): ProcessBus {
  const receivers = new Map<string, Set<Receiver>>();
  const peers = new Set<Peer>();

  function deliver(channel: string, text: string): number {
    const listening = receivers.get(channel);
    if (listening === undefined) return 0;
    for (const receive of [...listening]) receive(text);
    return 1;
  }

  async function publish(channel: string, text: string, sender?: Peer): Promise<number> {
    const others = [...peers].filter((peer) => peer !== sender && peer.isActive());
    const counts = await Promise.all(others.map((peer) => peer.publish(channel, text)));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  return {
    get hasPeers() {
      return [...peers].some((peer) => peer.isActive());
    },
    publish: (channel, text) => publish(channel, text),
    listen(channel, receive): BusChannel {
      const listening = receivers.get(channel) ?? new Set();
      receivers.set(channel, listening);
      listening.add(receive);
      return {
        ready: READY,
        close() {
          listening.delete(receive);
          if (listening.size === 0 && receivers.get(channel) === listening) receivers.delete(channel);
        },
      };
    },
    connect(send, isActive = () => true) {
      const receive = async (channel: string, text: string): Promise<number> =>
        deliver(channel, text) + (await publish(channel, text, peer));
      const peer = new Peer(send, isActive, receive, () => peers.delete(peer));
      peers.add(peer);
      return peer;
    },
  };
}

class Peer implements BusPeer {
  readonly isActive: () => boolean;
  readonly #send: (message: BusMessage) => void;
  readonly #receive: (channel: string, text: string) => Promise<number>;
  readonly #closed: () => void;
  readonly #waiting = new Map<number, (receivers: number) => void>();
  #nextId = 1;

  constructor(
    send: (message: BusMessage) => void,
    isActive: () => boolean,
    receive: (channel: string, text: string) => Promise<number>,
    closed: () => void,
  ) {
    this.#send = send;
    this.isActive = isActive;
    this.#receive = receive;
    this.#closed = closed;
  }

  publish(channel: string, text: string): Promise<number> {
    return new Promise((resolve) => {
      const id = this.#nextId++;
      this.#waiting.set(id, resolve);
      this.#send({ type: "bus message", id, channel, text });
    });
  }

  received(message: BusMessage): void {
    const { id } = message;
    if (message.type === "bus message")
      void this.#receive(message.channel, message.text).then((count) =>
        this.#send({ type: "bus receipt", id, receivers: count }),
      );
    else {
      this.#waiting.get(id)?.(message.receivers);
      this.#waiting.delete(id);
    }
  }

  close(): void {
    this.#closed();
    for (const resolve of this.#waiting.values()) resolve(0);
    this.#waiting.clear();
  }
}
