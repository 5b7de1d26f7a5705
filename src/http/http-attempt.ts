/**
 * One outgoing HTTP call between what carries it (a connection) and what consumes the answer. It holds the contract of
 * `ResponseHandler` for every carrier: one terminal callback at most, none after `abort`, none after an exception of the
 * consumer but the `error` that reports it; a consumer may abort, resume or throw inside any callback.
 */
import type { Duplex } from "node:stream";
import { surface } from "../base/errors.ts";
import { type AttemptState, afterEvent, isOver } from "./attempt-state.ts";
import type { HeaderList } from "./headers.ts";
import { type HttpCall, HttpClientError, type ResponseHandler } from "./http-client.ts";

/** What brings the bytes of an answer. It calls nothing before the consumer holds the attempt. */
export interface Carrier {
  /** The answer is not wanted any more: closes. Called once at most, and not after the answer has ended. */
  stop(attempt: HttpAttempt): void;
  /** Reads on after a pause. */
  proceed(attempt: HttpAttempt): void;
}

export class HttpAttempt implements HttpCall {
  readonly #carrier: Carrier;
  readonly #handler: ResponseHandler;
  #state: AttemptState = "asked";
  /** How often it was resumed: one inside `data` counts also if the consumer then says that it wants to pause. */
  #resumes = 0;

  constructor(carrier: Carrier, handler: ResponseHandler) {
    this.#carrier = carrier;
    this.#handler = handler;
  }

  get isOver(): boolean {
    return isOver(this.#state);
  }

  // FROM THE CARRIER

  head(status: number, headers: HeaderList): void {
    const next = afterEvent(this.#state, "head");
    if (next === undefined) return;
    this.#state = next;
    try {
      this.#handler.head(status, headers);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  /** False if the carrier shall pause. */
  data(chunk: Buffer): boolean {
    if (this.#state !== "answering") return true;
    const resumes = this.#resumes;
    try {
      return this.#handler.data(chunk) || this.#resumes !== resumes || this.isOver;
    } catch (thrown) {
      this.#threw(thrown);
      return true;
    }
  }

  end(trailers: string[]): void {
    const next = afterEvent(this.#state, "end");
    if (next === undefined) return;
    this.#state = next;
    try {
      this.#handler.end(trailers);
    } catch (thrown) {
      // Its end was not handled to the end: without a word the consumer would wait for ever.
      this.#tell(internal(thrown));
    }
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    const next = afterEvent(this.#state, "upgrade");
    if (next === undefined || this.#handler.upgraded === undefined) {
      socket.destroy();
      return;
    }
    this.#state = next;
    try {
      this.#handler.upgraded(status, headers, socket);
    } catch (thrown) {
      socket.destroy();
      this.#tell(internal(thrown));
    }
  }

  fail(error: HttpClientError): void {
    const next = afterEvent(this.#state, "error");
    if (next === undefined) return;
    this.#state = next;
    this.#tell(error);
  }

  // FROM THE CONSUMER

  abort(): void {
    const next = afterEvent(this.#state, "abort");
    if (next === undefined) return;
    this.#state = next;
    this.#carrier.stop(this);
  }

  resume(): void {
    if (this.isOver) return;
    this.#resumes += 1;
    this.#carrier.proceed(this);
  }

  /** A defect of the consumer costs this answer, not the connections of others. */
  #threw(thrown: unknown): void {
    if (this.isOver) {
      surface(thrown);
      return;
    }
    this.#state = "failed";
    this.#carrier.stop(this);
    this.#tell(internal(thrown));
  }

  #tell(error: HttpClientError): void {
    try {
      this.#handler.error(error);
    } catch (thrown) {
      surface(thrown);
    }
  }
}

function internal(thrown: unknown): HttpClientError {
  return new HttpClientError("internal", thrown instanceof Error ? thrown.message : String(thrown), thrown);
}
