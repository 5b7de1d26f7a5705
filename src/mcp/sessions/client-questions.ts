/**
 * The questions of servers that one client has to answer, under ids of our own: several servers may use the same.
 */
import type { WireTap } from "../../core/wire.ts";
import type { Question } from "../wire/call.ts";
import { type ClientResponse, notificationText, withId } from "../wire/json-rpc.ts";
import { members, slice } from "../wire/json-text.ts";
import type { EventStream } from "./event-stream.ts";

export class ClientQuestions {
  /** Made with the first question: most clients are never asked. */
  #open: Map<string, Question> | undefined = undefined;
  #nextId = 1;
  #isClosed = false;

  /** Puts a question on a stream, and takes it back there if the server does. */
  ask(question: Question, stream: EventStream): void {
    if (this.#isClosed) {
      question.answer('"error":{"code":-32603,"message":"The client is gone"}');
      return;
    }
    const id = String(this.#nextId++);
    this.#open ??= new Map();
    this.#open.set(id, question);
    question.withdrawn = (reason) => {
      if (!this.#open?.delete(id)) return;
      const params = reason === undefined ? `{"requestId":${id}}` : `{"requestId":${id},"reason":${reason}}`;
      stream.event(notificationText("notifications/cancelled", params));
    };
    stream.event(withId(question.message, id));
  }

  /** An answer to a question that nobody asked, or a second one, is dropped. */
  answered(response: ClientResponse, wire?: WireTap): void {
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
