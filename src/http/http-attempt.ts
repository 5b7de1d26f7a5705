/**
 * Mediates between a connection (the carrier) and the receiver of the response for one outgoing HTTP call. The receiver
 * may abort, resume, or throw inside any callback.
 */
import type { Duplex } from "node:stream";
import { surface } from "../base/errors.ts";
import { shortageCode } from "../base/file-descriptors.ts";
import type { HeaderList } from "./headers.ts";
import { type HealthObserver, type HttpCall, HttpClientError, type HttpResponseReceiver } from "./http-client.ts";

export type AttemptState = "waiting" | "responding" | "ended" | "failed" | "abandoned";

export type AttemptEvent = "head" | "data" | "end" | "upgrade" | "error" | "abort";

/**
 * Implements the state machine of an attempt. Returns the next state, or undefined if the event is invalid in this
 * state and must be dropped.
 */
export function afterEvent(state: AttemptState, event: AttemptEvent): AttemptState | undefined {
  if (isOver(state)) return undefined;
  switch (event) {
    case "head":
      return state === "waiting" ? "responding" : undefined;
    case "upgrade":
      return state === "waiting" ? "ended" : undefined;
    case "data":
      return state === "responding" ? "responding" : undefined;
    case "end":
      return state === "responding" ? "ended" : undefined;
    case "error":
      return "failed";
    case "abort":
      return "abandoned";
  }
}

export function isOver(state: AttemptState): state is "ended" | "failed" | "abandoned" {
  return state !== "waiting" && state !== "responding";
}

/** Represents the connection of an attempt. It makes no calls before `send` has returned the attempt. */
export interface Carrier {
  /** Closes the connection or stream. Called at most once, and never after the response has ended. */
  stop(attempt: HttpAttempt): void;
  proceed(attempt: HttpAttempt): void;
}

export class HttpAttempt implements HttpCall {
  readonly #carrier: Carrier;
  readonly #receiver: HttpResponseReceiver;
  readonly #health: HealthObserver | undefined;
  #state: AttemptState = "waiting";
  /** Counts `resume` calls, because a `resume` inside `data` takes effect even if that `data` returns false. */
  #resumes = 0;

  constructor(carrier: Carrier, receiver: HttpResponseReceiver, health?: HealthObserver) {
    this.#carrier = carrier;
    this.#receiver = receiver;
    this.#health = health;
  }

  get isOver(): boolean {
    return isOver(this.#state);
  }

  head(status: number, headers: HeaderList): void {
    const next = afterEvent(this.#state, "head");
    if (next === undefined) return;
    this.#state = next;
    try {
      this.#health?.worked();
      this.#receiver.head(status, headers);
    } catch (thrown) {
      this.#receiverThrew(thrown);
    }
  }

  /** Returns false if the carrier must pause. */
  data(chunk: Buffer): boolean {
    if (this.#state !== "responding") return true;
    const resumes = this.#resumes;
    try {
      return this.#receiver.data(chunk) || this.#resumes !== resumes || this.isOver;
    } catch (thrown) {
      this.#receiverThrew(thrown);
      return true;
    }
  }

  end(trailers: readonly string[]): void {
    const next = afterEvent(this.#state, "end");
    if (next === undefined) return;
    this.#state = next;
    try {
      this.#receiver.end(trailers);
    } catch (thrown) {
      // The receiver did not complete `end`. Without `fail`, its client may wait forever.
      this.#fail(internal(thrown));
    }
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    const next = afterEvent(this.#state, "upgrade");
    if (next === undefined || this.#receiver.upgraded === undefined) {
      socket.destroy();
      return;
    }
    this.#state = next;
    try {
      this.#health?.worked();
      this.#receiver.upgraded(status, headers, socket);
    } catch (thrown) {
      socket.destroy();
      this.#fail(internal(thrown));
    }
  }

  fail(error: HttpClientError): void {
    const next = afterEvent(this.#state, "error");
    if (next === undefined) return;
    this.#state = next;
    this.#fail(error);
  }

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

  /** A bug in the receiver fails this response and does not affect other connections. */
  #receiverThrew(thrown: unknown): void {
    if (this.isOver) {
      surface(thrown);
      return;
    }
    this.#state = "failed";
    this.#carrier.stop(this);
    this.#fail(internal(thrown));
  }

  #fail(error: HttpClientError): void {
    try {
      if (isFaultOfServer(error)) this.#health?.failed(error.message);
      this.#receiver.fail(error);
    } catch (thrown) {
      surface(thrown);
    }
  }
}

/** A gateway without free file descriptors says nothing about the server. */
function isFaultOfServer({ kind, cause }: HttpClientError): boolean {
  return (kind === "connect" || kind === "connect-timeout") && shortageCode(cause) === undefined;
}

function internal(thrown: unknown): HttpClientError {
  return new HttpClientError("internal", thrown instanceof Error ? thrown.message : String(thrown), thrown);
}
