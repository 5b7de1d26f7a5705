/**
 * What replicas tell each other about the sessions and calls that they hold, over the store's bus. Messages are sealed and
 * bound to their channel: whoever can write to Redis can neither read nor invent one. Without a bus nobody is told anything.
 */
import { randomBytes } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { Sealer } from "../../store/sealer.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import { type Bus, type BusChannel, type Store, storeNamespace } from "../../store/store.ts";

/** Messages that are on their way to Redis; beyond it they are dropped, as while Redis is away. */
const MAX_SENDS = 1_000;
/** How long a replica waits for the others to do what it asked; they do it in milliseconds, if they live. */
const ASK_MS = 2_000;

export interface ReplicaEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: Store;
  readonly key: SigningKey;
}

/** A part of what replicas tell each other; each kind of message names its own. */
export interface ReplicaMessage {
  readonly kind: string;
  readonly text?: string;
}

interface Envelope {
  readonly from: string;
  readonly message: ReplicaMessage;
  /** Whoever hears it tells when it is done. */
  readonly ask?: number;
}

export type Heard = (message: ReplicaMessage) => Promise<void> | void;

export class ReplicaBus {
  readonly #env: ReplicaEnv;
  readonly #store: Store;
  readonly #id = randomBytes(12).toString("hex");
  readonly #asked = new Map<number, () => void>();
  #replies: BusChannel | undefined = undefined;
  #nextAsk = 1;
  #sends = 0;
  #sealer: { readonly secret: string; readonly sealer: Sealer } | undefined = undefined;

  constructor(env: ReplicaEnv) {
    this.#env = env;
    this.#store = storeNamespace(env.store, "mcp-replicas");
  }

  get isThere(): boolean {
    return this.#bus !== undefined;
  }

  get #bus(): Bus | undefined {
    return this.#store.bus;
  }

  /** Resolves with how many others may have heard it; 0 also if it could not be sent. This process counts if it listens. */
  async send(channel: string, message: ReplicaMessage, ask?: number): Promise<number> {
    const bus = this.#bus;
    if (bus === undefined) return 0;
    if (this.#sends >= MAX_SENDS) {
      this.#env.logger.warn("a message to other replicas was dropped", { kind: message.kind });
      return 0;
    }
    this.#sends += 1;
    try {
      const envelope: Envelope = { from: this.#id, message, ...(ask === undefined ? {} : { ask }) };
      return await bus.publish(channel, this.#sealed().seal(channel, envelope));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.#env.logger.warn("other replicas could not be told", { kind: message.kind, reason });
      return 0;
    } finally {
      this.#sends -= 1;
    }
  }

  /** Resolves when all who heard it have done it, or time is over. */
  async ask(channel: string, message: ReplicaMessage): Promise<void> {
    const bus = this.#bus;
    if (bus === undefined) return;
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
      void this.send(channel, message, id).then((heard) => {
        expected = heard;
        if (done >= expected) end();
      });
    });
  }

  /** Hears what other processes send, not what this one does. Undefined where there is no bus. */
  listen(channel: string, heard: Heard): BusChannel | undefined {
    return this.#bus?.listen(channel, (sealed) => {
      const envelope = this.#opened(channel, sealed);
      if (envelope === undefined) return;
      const { from, message, ask } = envelope;
      void Promise.resolve()
        .then(() => (from === this.#id ? undefined : heard(message)))
        .catch((error: Error) => this.#failed(message, error))
        .then(() => (ask === undefined ? 0 : this.send(repliesOf(from), { kind: "done", text: String(ask) })));
    });
  }

  #listenForReplies(bus: Bus): Promise<void> {
    const channel = repliesOf(this.#id);
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
    this.#env.logger.warn("a message of another replica could not be followed", { kind, reason: error.message });
  }

  /** The key may be read from the store later than the first message is sent. */
  #sealed(): Sealer {
    const secret = this.#env.key.sign("mcp replicas");
    if (this.#sealer?.secret !== secret) this.#sealer = { secret, sealer: new Sealer(secret, "mcp replicas") };
    return this.#sealer.sealer;
  }
}

function repliesOf(id: string): string {
  return `replies/${id}`;
}
