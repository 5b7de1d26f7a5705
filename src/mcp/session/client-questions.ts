/**
 * The questions of servers that one client has to answer, under ids of our own: several servers may use the same, and so may
 * other replicas that hold the session. An answer to a question that was not asked here is left for them.
 */
import { randomInt } from "node:crypto";
import type { WireTap } from "../../core/wire.ts";
import { members, slice } from "../../json/json-text.ts";
import type { Question } from "../protocol/call.ts";
import { type ClientResponse, notificationText, withId } from "../protocol/json-rpc.ts";
import type { Answer, CarriedAnswers, Recorded, Waiting } from "./carried-answers.ts";

/** Ids begin at a random multiple of this, below 2^53: an answer never fits a question of another process. */
const IDS_PER_SESSION = 2_000_000;
const ID_BASES = 2 ** 32;

export class ClientQuestions implements Waiting {
  readonly record: Recorded | undefined;
  readonly #carried: CarriedAnswers;
  /** Made with the first question: most clients are never asked. */
  #open: Map<string, Question> | undefined = undefined;
  #nextId = 0;
  #isClosed = false;

  constructor(record: Recorded | undefined, carried: CarriedAnswers) {
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
    else this.#carried.leave(this.record, response);
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
