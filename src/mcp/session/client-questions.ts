/**
 * The questions of servers that one client has to answer, under ids of our own: several servers may use the same, and so may
 * other replicas that hold the session. An answer to a question that was not asked here is left for them.
 */
import { randomInt } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import { members, slice } from "../../json/json-text.ts";
import type { Logger } from "../../observe/log/logger.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import { type Store, storeNamespace } from "../../store/store.ts";
import { Vault } from "../logins/vault.ts";
import type { Question } from "../protocol/call.ts";
import { type ClientResponse, notificationText, withId } from "../protocol/json-rpc.ts";

/** Ids begin at a random multiple of this, below 2^53: an answer never fits a question of another process. */
const IDS_PER_SESSION = 2_000_000;
const ID_BASES = 2 ** 32;

export class ClientQuestions implements Waiting {
  readonly record: Recorded | undefined;
  readonly #carried: ForwardedAnswers;
  /** Made with the first question: most clients are never asked. */
  #open: Map<string, Question> | undefined = undefined;
  #nextId = 0;
  #isClosed = false;

  constructor(record: Recorded | undefined, carried: ForwardedAnswers) {
    this.record = record;
    this.#carried = carried;
  }

  get openQuestions(): readonly string[] {
    return this.#open === undefined ? [] : [...this.#open.keys()];
  }

  /** Puts a question on a stream, and takes it back there if the server does. */
  ask(question: Question, stream: { event(json: string): void }): void {
    if (this.#isClosed) {
      question.answer('"error":{"code":-32603,"message":"The client is gone"}');
      return;
    }
    if (this.#nextId === 0) this.#nextId = randomInt(ID_BASES) * IDS_PER_SESSION + 1;
    const id = String(this.#nextId++);
    this.#open ??= new Map();
    this.#open.set(id, question);
    question.withdrawn = (reason) => {
      if (!this.#open?.delete(id)) return;
      const params = reason === undefined ? `{"requestId":${id}}` : `{"requestId":${id},"reason":${reason}}`;
      stream.event(notificationText("notifications/cancelled", params));
    };
    stream.event(withId(question.message, id));
    this.#carried.watch(this);
  }

  answered(response: ClientResponse, wire?: WireTap): void {
    if (this.#open?.has(response.id)) this.carried(response, wire);
    else this.#carried.forward(this.record, response);
  }

  /** An answer to a question that nobody asked, or a second one, is dropped. */
  carried(response: Answer, wire?: WireTap): void {
    const question = this.#open?.get(response.id);
    this.#open?.delete(response.id);
    const outcome = members(response.text, 0).find(({ key }) => key === "result" || key === "error");
    if (question && outcome) question.answer(`"${outcome.key}":${slice(response.text, outcome)}`, wire);
  }

  /** The client is gone: whoever asks from now on is told so. */
  close(): void {
    this.#isClosed = true;
    this.#open = undefined;
  }
}

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

export interface SharedStore {
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

export class ForwardedAnswers {
  readonly #env: SharedStore;
  readonly #store: Store;
  readonly #watched = new Set<Waiting>();
  #vault: { readonly secret: string; readonly vault: Vault } | undefined = undefined;
  #writes = 0;

  constructor(env: SharedStore) {
    this.#env = env;
    this.#store = storeNamespace(env.store, "mcp-answers");
  }

  /** The client's answer to a question that is not of this process. */
  forward(record: Recorded | undefined, { id, text }: Answer): void {
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
