/**
 * Tracks the server requests ("questions") that wait for one client's response. The gateway assigns their ids, because
 * several servers may use the same ones.
 */
import { randomInt } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import type { WireTap } from "../../core/wire.ts";
import { members, slice } from "../../json/json-text.ts";
import type { Logger } from "../../record/log/logger.ts";
import type { OwnedStore } from "../../store/owned-store.ts";
import type { SigningKey } from "../../store/signing-key.ts";
import type { Store } from "../../store/store.ts";
import { Vault } from "../logins/vault.ts";
import type { Question } from "../protocol/call.ts";
import { type ClientResponse, INTERNAL_ERROR, notificationText, withId } from "../protocol/json-rpc.ts";

/**
 * Ids start at a random multiple of this number, below 2^53, so that a response is unlikely to match a question from
 * another process.
 */
const IDS_PER_SESSION = 2_000_000;
const ID_BASES = 2 ** 32;
/** A client may need the input of a user, but a call must not wait for a client that is gone. */
const MAX_QUESTION_MS = 3_600_000;
const EXPIRED = `"error":{"code":${INTERNAL_ERROR},"message":"The client did not respond within ${MAX_QUESTION_MS / 1000} s"}`;

interface OpenQuestion {
  readonly question: Question;
  readonly askedMs: number;
}

export class ClientQuestions implements Waiting {
  readonly record: Recorded | undefined;
  readonly #forwarded: ForwardedAnswers;
  /** The questions are in the order in which they were sent. */
  #open: Map<string, OpenQuestion> | undefined = undefined;
  #nextId = 0;
  #isClosed = false;

  constructor(record: Recorded | undefined, forwarded: ForwardedAnswers) {
    this.record = record;
    this.#forwarded = forwarded;
  }

  get openQuestions(): readonly string[] {
    return this.#open === undefined ? [] : [...this.#open.keys()];
  }

  ask(question: Question, stream: { event(json: string): void }, nowMs: number): void {
    if (this.#isClosed) {
      question.answer('"error":{"code":-32603,"message":"The client is gone"}');
      return;
    }
    if (this.#nextId === 0) this.#nextId = randomInt(ID_BASES) * IDS_PER_SESSION + 1;
    const id = String(this.#nextId++);
    this.#open ??= new Map();
    this.#open.set(id, { question, askedMs: nowMs });
    question.withdrawn = (reason) => {
      if (!this.#open?.delete(id)) return;
      const params = reason === undefined ? `{"requestId":${id}}` : `{"requestId":${id},"reason":${reason}}`;
      stream.event(notificationText("notifications/cancelled", params));
    };
    stream.event(withId(question.message, id));
    this.#forwarded.watch(this);
  }

  answered(response: ClientResponse, wire?: WireTap): void {
    if (this.#open?.has(response.id)) this.deliverResponse(response, wire);
    else this.#forwarded.forward(this.record, response);
  }

  /** Delivers a response. Unsolicited and duplicate responses are dropped. */
  deliverResponse(response: Answer, wire?: WireTap): void {
    const open = this.#open?.get(response.id);
    this.#open?.delete(response.id);
    const outcome = members(response.text, 0).find(({ key }) => key === "result" || key === "error");
    if (open && outcome) open.question.answer(`"${outcome.key}":${slice(response.text, outcome)}`, wire);
  }

  /** Withdraws the questions that the client has not answered in time, and responds to their servers with an error. */
  sweep(nowMs: number): void {
    if (this.#open === undefined) return;
    for (const { question, askedMs } of [...this.#open.values()]) {
      if (nowMs - askedMs < MAX_QUESTION_MS) return;
      question.withdrawn?.('"timeout"');
      question.answer(EXPIRED);
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#open = undefined;
  }
}

const KEPT_MS = 30_000;
const FIRST_LOOK_MS = 50;
const LAST_PAUSE_MS = 1_000;
const MAX_CARRIED_CHARS = 256 * 1024;
/** Limits concurrent writes to the store. Responses beyond the limit are dropped. */
const MAX_WRITES = 64;
/** The gateway assigns numeric ids, so a response with another id is unsolicited. */
const QUESTION_ID = /^\d{1,16}$/;

export interface SharedStore {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: OwnedStore;
  readonly key: SigningKey;
}

/** `name` is the unguessable name of the session in the store. */
export interface Recorded {
  readonly name: string;
}

export type Answer = Pick<ClientResponse, "id" | "text">;

export interface Waiting {
  readonly record: Recorded | undefined;
  readonly openQuestions: readonly string[];
  deliverResponse(answer: Answer): void;
}

export class ForwardedAnswers {
  readonly #env: SharedStore;
  readonly #store: Store;
  readonly #watched = new Set<Waiting>();
  #vault: { readonly secret: string; readonly vault: Vault } | undefined = undefined;
  #writes = 0;

  constructor(env: SharedStore) {
    this.#env = env;
    this.#store = env.store.at("mcp-answers");
  }

  forward(record: Recorded | undefined, { id, text }: Answer): void {
    if (record === undefined || !this.#isShared || !QUESTION_ID.test(id)) return;
    if (text.length > MAX_CARRIED_CHARS || this.#writes >= MAX_WRITES) {
      this.#env.logger.warn("client response not forwarded to the replica that sent the question", {
        characters: text.length,
      });
      return;
    }
    this.#writes += 1;
    this.#sealed()
      .put(storeKey(record, id), text, this.#env.clock.now() + KEPT_MS)
      .catch((error: Error) =>
        this.#env.logger.warn("client response could not be stored for another replica", { reason: error.message }),
      )
      .finally(() => {
        this.#writes -= 1;
      });
  }

  /**
   * Polls the store for responses while the session has open questions. An upgrade may begin before the client
   * responds, so a session is also watched while no other process uses the store.
   */
  watch(session: Waiting): void {
    if (session.record === undefined || this.#watched.has(session)) return;
    this.#watched.add(session);
    this.#lookAfter(FIRST_LOOK_MS, session, session.record);
  }

  get #isShared(): boolean {
    return this.#store.isShared === true;
  }

  #lookAfter(pauseMs: number, session: Waiting, record: Recorded): void {
    this.#env.clock.after(pauseMs, () => {
      this.#look(session, record)
        // The store may be available at the next poll.
        .catch(() => undefined)
        .finally(() => {
          if (session.openQuestions.length === 0) this.#watched.delete(session);
          else this.#lookAfter(Math.min(pauseMs * 2, LAST_PAUSE_MS), session, record);
        });
    });
  }

  async #look(session: Waiting, record: Recorded): Promise<void> {
    if (!this.#isShared) return;
    for (const id of session.openQuestions) {
      const text = await this.#sealed().take<string>(storeKey(record, id));
      if (text !== undefined) session.deliverResponse({ id, text });
    }
  }

  #sealed(): Vault {
    const secret = this.#env.key.sign("mcp answers");
    if (this.#vault?.secret !== secret) this.#vault = { secret, vault: new Vault(this.#store, secret) };
    return this.#vault.vault;
  }
}

function storeKey({ name }: Recorded, id: string): string {
  return `${name}/${id}`;
}
