/**
 * Sends messages between the processes of an in-place upgrade over the channel between them. Without another process,
 * nothing is sent.
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
  connect(send: (message: BusMessage) => void): BusPeer;
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

  return {
    get hasPeers() {
      return peers.size > 0;
    },
    async publish(channel, text) {
      const counts = await Promise.all([...peers].map((peer) => peer.publish(channel, text)));
      return counts.reduce((sum, count) => sum + count, 0);
    },
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
    connect(send) {
      const peer = new Peer(send, deliver, () => peers.delete(peer));
      peers.add(peer);
      return peer;
    },
  };
}

class Peer implements BusPeer {
  readonly #send: (message: BusMessage) => void;
  readonly #deliver: (channel: string, text: string) => number;
  readonly #closed: () => void;
  readonly #waiting = new Map<number, (receivers: number) => void>();
  #nextId = 1;

  constructor(
    send: (message: BusMessage) => void,
    deliver: (channel: string, text: string) => number,
    closed: () => void,
  ) {
    this.#send = send;
    this.#deliver = deliver;
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
      this.#send({ type: "bus receipt", id, receivers: this.#deliver(message.channel, message.text) });
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
