/**
 * Sends messages about sessions and calls between replicas, or between the processes of an upgrade, over the store's
 * bus. Messages are encrypted and bound to their channel.
 */
import { randomBytes } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../record/log/logger.ts";
import type { OwnedStore } from "../../store/owned-store.ts";
import { Sealer } from "../../store/sealer.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import type { Bus, BusChannel, Store } from "../../store/store.ts";

/** Limits concurrent sends. Further messages are dropped. */
const MAX_SENDS = 1_000;
const ASK_MS = 2_000;

export interface ReplicaServices {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: OwnedStore;
  readonly key: SigningKey;
}

export interface ReplicaMessage {
  readonly kind: string;
  readonly text?: string;
}

interface Envelope {
  readonly from: string;
  readonly message: ReplicaMessage;
  /** Requests a confirmation. Each receiver sends this id back after processing the message. */
  readonly ask?: number;
}

export type ReplicaListener = (message: ReplicaMessage) => Promise<void> | void;

export class ReplicaBus {
  readonly #env: ReplicaServices;
  readonly #store: Store;
  readonly #id = randomBytes(12).toString("hex");
  readonly #asked = new Map<number, () => void>();
  #replies: BusChannel | undefined = undefined;
  #nextAsk = 1;
  #sends = 0;
  #sealer: { readonly secret: string; readonly sealer: Sealer } | undefined = undefined;

  constructor(env: ReplicaServices) {
    this.#env = env;
    this.#store = env.store.at("mcp-replicas");
  }

  /** True if other processes may receive messages. */
  get isThere(): boolean {
    const bus = this.#bus;
    return bus !== undefined && bus.hasPeers !== false;
  }

  get #bus(): Bus | undefined {
    return this.#store.bus;
  }

  /** Resolves with the number of receivers, or with 0 if the message could not be sent. */
  async send(channel: string, message: ReplicaMessage, ask?: number): Promise<number> {
    const bus = this.#bus;
    if (bus === undefined || bus.hasPeers === false) return 0;
    if (this.#sends >= MAX_SENDS) {
      this.#env.logger.warn("message to other replicas dropped: too many in flight", { kind: message.kind });
      return 0;
    }
    this.#sends += 1;
    try {
      const envelope: Envelope = { from: this.#id, message, ...(ask === undefined ? {} : { ask }) };
      return await bus.publish(channel, this.#sealed().seal(channel, envelope));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#env.logger.warn("message to other replicas failed", { kind: message.kind, reason });
      return 0;
    } finally {
      this.#sends -= 1;
    }
  }

  /** Resolves when the receivers have confirmed the message or the wait times out. */
  async ask(channel: string, message: ReplicaMessage): Promise<void> {
    const bus = this.#bus;
    if (bus === undefined || bus.hasPeers === false) return;
    await this.#listenForReplies(bus);
    const id = this.#nextAsk++;
    let done = 0;
    let expected = Number.POSITIVE_INFINITY;
    await new Promise<void>((resolve) => {
      const end = (): void => {
        this.#asked.delete(id);
        timer.cancel();
        resolve();
      };
      const timer = this.#env.clock.after(ASK_MS, end);
      this.#asked.set(id, () => {
        done += 1;
        if (done >= expected) end();
      });
      void this.send(channel, message, id).then((receivers) => {
        expected = receivers;
        if (done >= expected) end();
      });
    });
  }

  /** Receives messages from other processes on a channel. Returns undefined without a bus. */
  listen(channel: string, received: ReplicaListener): BusChannel | undefined {
    return this.#bus?.listen(channel, (sealed) => {
      const envelope = this.#opened(channel, sealed);
      if (envelope === undefined) return;
      const { from, message, ask } = envelope;
      void Promise.resolve()
        .then(() => (from === this.#id ? undefined : received(message)))
        .catch((error: Error) => this.#failed(message, error))
        .then(() => (ask === undefined ? 0 : this.send(replyChannel(from), { kind: "done", text: String(ask) })));
    });
  }

  #listenForReplies(bus: Bus): Promise<void> {
    const channel = replyChannel(this.#id);
    this.#replies ??= bus.listen(channel, (sealed) => {
      const envelope = this.#opened(channel, sealed);
      this.#asked.get(Number(envelope?.message.text))?.();
    });
    return this.#replies.ready;
  }

  #opened(channel: string, sealed: string): Envelope | undefined {
    return this.#sealed().open<Envelope>(channel, sealed);
  }

  #failed({ kind }: ReplicaMessage, error: Error): void {
    this.#env.logger.warn("message of another replica could not be processed", { kind, reason: error.message });
  }

  #sealed(): Sealer {
    const secret = this.#env.key.sign("mcp replicas");
    if (this.#sealer?.secret !== secret) this.#sealer = { secret, sealer: new Sealer(secret, "mcp replicas") };
    return this.#sealer.sealer;
  }
}

function replyChannel(id: string): string {
  return `replies/${id}`;
}
