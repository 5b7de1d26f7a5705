/**
 * Answers of clients to questions of servers that another replica has asked: behind a load balancer the client's POST may
 * reach any of them. The one that gets it leaves it, sealed, in the store; the one that asked looks there while it waits.
 * Only a shared store (Redis) is worth looking into.
 */

import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../observe/log/logger.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import { type Store, storeNamespace } from "../../store/store.ts";
import { Vault } from "../logins/vault.ts";
import type { ClientResponse } from "../protocol/json-rpc.ts";

/** Whoever asked looks far more often. */
const KEPT_MS = 30_000;
const FIRST_LOOK_MS = 50;
/** People take their time: looking every second is enough then. */
const LAST_PAUSE_MS = 1_000;
/** Most answers are forms; a generated text fits too. */
const MAX_CARRIED_CHARS = 256 * 1024;
/** Answers that are being written; beyond it the client's answer is lost, as before a failure of the store. */
const MAX_WRITES = 64;
/** Ids of questions are numbers; what else a client answers was never asked. */
const QUESTION_ID = /^\d{1,16}$/;

export interface CarriedEnv {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: Store;
  readonly key: SigningKey;
}

/** The session as the store knows it: a name that cannot be guessed. */
export interface Recorded {
  readonly name: string;
}

export type Answer = Pick<ClientResponse, "id" | "text">;

/** A session that waits for answers. */
export interface Waiting {
  readonly record: Recorded | undefined;
  /** Ids of the questions that its client has not answered. */
  readonly openQuestions: readonly string[];
  carried(answer: Answer): void;
}

export class CarriedAnswers {
  readonly #env: CarriedEnv;
  readonly #store: Store;
  readonly #watched = new Set<Waiting>();
  #vault: { readonly secret: string; readonly vault: Vault } | undefined = undefined;
  #writes = 0;

  constructor(env: CarriedEnv) {
    this.#env = env;
    this.#store = storeNamespace(env.store, "mcp-answers");
  }

  /** The client's answer to a question that is not of this process. */
  leave(record: Recorded | undefined, { id, text }: Answer): void {
    if (record === undefined || !this.#isShared || !QUESTION_ID.test(id)) return;
    if (text.length > MAX_CARRIED_CHARS || this.#writes >= MAX_WRITES) {
      this.#env.logger.warn("a client's answer did not reach the replica that asked", { characters: text.length });
      return;
    }
    this.#writes += 1;
    this.#sealed()
      .put(placeOf(record, id), text, this.#env.clock.now() + KEPT_MS)
      .catch((error: Error) => this.#env.logger.warn("an answer could not be carried", { reason: error.message }))
      .finally(() => {
        this.#writes -= 1;
      });
  }

  /** A server has asked the session's client something: looks for the answer until all are there. */
  watch(session: Waiting): void {
    if (session.record === undefined || !this.#isShared || this.#watched.has(session)) return;
    this.#watched.add(session);
    this.#lookAfter(FIRST_LOOK_MS, session, session.record);
  }

  get #isShared(): boolean {
    return this.#store.kind === "redis";
  }

  #lookAfter(pauseMs: number, session: Waiting, record: Recorded): void {
    this.#env.clock.after(pauseMs, () => {
      this.#look(session, record)
        // A store that is away now may be back at the next look.
        .catch(() => undefined)
        .finally(() => {
          if (session.openQuestions.length === 0) this.#watched.delete(session);
          else this.#lookAfter(Math.min(pauseMs * 2, LAST_PAUSE_MS), session, record);
        });
    });
  }

  async #look(session: Waiting, record: Recorded): Promise<void> {
    for (const id of session.openQuestions) {
      const text = await this.#sealed().take<string>(placeOf(record, id));
      if (text !== undefined) session.carried({ id, text });
    }
  }

  /** The key may be read from the store later than the first question is asked. */
  #sealed(): Vault {
    const secret = this.#env.key.sign("mcp answers");
    if (this.#vault?.secret !== secret) this.#vault = { secret, vault: new Vault(this.#store, secret) };
    return this.#vault.vault;
  }
}

function placeOf({ name }: Recorded, id: string): string {
  return `${name}/${id}`;
}
