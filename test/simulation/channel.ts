/**
 * Message channels between threads. A message is copied when it is sent, arrives in order, and waits until the receiver
 * listens. A port can be sent to another thread.
 */
import { EventEmitter } from "node:events";
import { OUTSIDE, type Scheduler } from "./scheduler.ts";
import type { Seeded } from "./seeded.ts";

const MESSAGE_MS = 0.05;

type Transfer = readonly (ArrayBuffer | Port)[];

export class Port extends EventEmitter {
  /** The process of the scheduler that has this port. */
  process: string;
  #peer: Port = this;
  readonly #channels: Channels;
  /** Messages that arrived before there is a listener. Undefined afterwards. */
  #waiting: (() => void)[] | undefined = [];
  #lastArrivalMs = 0;
  #isClosed = false;

  constructor(channels: Channels, process: string) {
    super();
    this.#channels = channels;
    this.process = process;
  }

  connect(peer: Port): void {
    this.#peer = peer;
    peer.#peer = this;
  }

  override on(event: string, listener: (value: never) => void): this {
    if (event === "message" && this.listenerCount("message") === 0)
      this.#channels.scheduler.after(0, () => this.#flush());
    return super.on(event, listener as () => void);
  }

  postMessage(message: unknown, transfer: Transfer = []): void {
    const ports = transfer.filter(isPort);
    for (const port of ports) port.process = this.#peer.process;
    if (this.#isClosed || this.#peer.#isClosed) {
      for (const port of ports) port.close();
      return;
    }
    const copy = copyOf(message, transfer);
    this.#toPeer((peer) => peer.#receive(() => peer.emit("message", copy)));
  }

  /** The peer gets the messages that were sent before. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#channels.ports.delete(this);
    this.#toPeer((peer) => peer.#receiveClose());
    this.#channels.scheduler.after(0, () => this.#emitClose(), this.process);
  }

  ref(): void {}

  unref(): void {}

  #toPeer(deliver: (peer: Port) => void): void {
    const peer = this.#peer;
    const { scheduler } = this.#channels;
    this.#lastArrivalMs = Math.max(this.#lastArrivalMs, scheduler.nowMs + this.#channels.delayMs());
    scheduler.at(this.#lastArrivalMs, () => scheduler.within(peer.process, () => deliver(peer)), OUTSIDE);
  }

  #receive(handle: () => void): void {
    if (this.#isClosed) return;
    if (this.#waiting) this.#waiting.push(handle);
    else handle();
  }

  /** As in Node, the event does not wait for a listener, unless messages do. */
  #receiveClose(): void {
    const close = (): void => {
      if (this.#isClosed) return;
      this.#isClosed = true;
      this.#channels.ports.delete(this);
      this.#emitClose();
    };
    if (this.#waiting?.length === 0) close();
    else this.#receive(close);
  }

  /** Each message has a task of its own, so that promise jobs run between them. */
  #flush(): void {
    const handle = this.#waiting?.shift();
    if (handle === undefined) {
      this.#waiting = undefined;
      return;
    }
    this.#channels.scheduler.after(0, () => this.#flush());
    if (!this.#isClosed) handle();
  }

  #emitClose(): void {
    this.emit("close");
    this.removeAllListeners();
  }
}

/** This share of the messages takes longer, because the receiving thread is busy. */
export interface SlowMessages {
  readonly share: number;
  readonly meanMs: number;
}

export const NOT_SLOW: SlowMessages = { share: 0, meanMs: 0 };

export class Channels {
  readonly scheduler: Scheduler;
  /** The ports that are open. */
  readonly ports = new Set<Port>();
  readonly #random: Seeded;
  readonly #slow: SlowMessages;

  constructor(scheduler: Scheduler, random: Seeded, slow: SlowMessages) {
    this.scheduler = scheduler;
    this.#random = random;
    this.#slow = slow;
  }

  open(process: string, peerProcess: string): readonly [Port, Port] {
    const ports = [new Port(this, process), new Port(this, peerProcess)] as const;
    ports[0].connect(ports[1]);
    for (const port of ports) this.ports.add(port);
    return ports;
  }

  /** Closes the ports of a thread that has ended. */
  end(process: string): void {
    for (const port of [...this.ports]) if (port.process === process) port.close();
  }

  delayMs(): number {
    return this.#random.chance(this.#slow.share) ? this.#random.exponential(this.#slow.meanMs) : MESSAGE_MS;
  }
}

function isPort(value: unknown): value is Port {
  return value instanceof Port;
}

/** Ports are properties of the message. The same object is used in both threads. */
function copyOf(message: unknown, transfer: Transfer): unknown {
  const buffers = transfer.filter((value): value is ArrayBuffer => !isPort(value));
  if (buffers.length === transfer.length) return structuredClone(message, { transfer: buffers });
  const entries = Object.entries(message as object);
  const rest = Object.fromEntries(entries.filter(([, value]) => !isPort(value)));
  const ports = Object.fromEntries(entries.filter(([, value]) => isPort(value)));
  return { ...structuredClone(rest, { transfer: buffers }), ...ports };
}
