/**
 * The request as attempts repeat it. Every attempt starts from the request as it left the route phase; a body that was
 * read whole, because it is small or because something reads it, serves all of them. What streams is sent once.
 */
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, forkRequest, type GatewayRequest } from "../../core/exchange.ts";
import { noMemoryFor, readBody } from "../../core/read-body.ts";
import type { ClientSink } from "../../core/sink.ts";
import { type BodyRoom, peekFirst, type RequestBodyStream, readExactly } from "../../http/body.ts";

/** A body of known length up to this is read before the backend is called: it can then be sent again. */
const SMALL_BODY_BYTES = 64 * 1024;

/** Who waits for a body; `isDone` if the client left or was answered meanwhile. */
export interface BodyWaiter {
  readonly isDone: boolean;
  fail(error: unknown): void;
}

export class HeldRequest {
  readonly #exchange: Exchange;
  readonly #sink: Pick<ClientSink, "askForBody">;
  readonly #waiter: BodyWaiter;
  #origin: GatewayRequest | undefined;

  constructor(exchange: Exchange, sink: Pick<ClientSink, "askForBody">, waiter: BodyWaiter) {
    this.#exchange = exchange;
    this.#sink = sink;
    this.#waiter = waiter;
  }

  /** Every attempt starts from the request as it is now. */
  remember(): void {
    this.#origin = this.#exchange.request;
  }

  /** The next attempt gets its own copy: policies of a backend may change it. */
  restore(): void {
    if (this.#origin) this.#exchange.request = forkRequest(this.#origin);
  }

  /** Reads a small body; anything else stays as it is. */
  holdSmall(next: () => void): void {
    const { body } = this.#exchange.request;
    if (body.kind === "none") next();
    else if (body.kind === "bytes") {
      if (this.#exchange.holdSmallBody(body.bytes.length)) next();
      else this.#reserve(body.bytes.length, (room) => this.#resume(undefined, () => this.#finish(room, next)));
    } else if (body.length === undefined || body.length > SMALL_BODY_BYTES) next();
    else this.#reserve(body.length, (room) => this.#readSmall(body.stream, body.length ?? 0, room, next));
  }

  /** Calls `granted` when there is memory for a body of this length, or fails. */
  #reserve(length: number, granted: (room: BodyRoom | undefined) => void): void {
    const room = this.#exchange.bodyRoom();
    if (room === undefined) granted(undefined);
    else
      room.reserve(
        length,
        () => granted(room),
        (error) => {
          if (!this.#waiter.isDone) this.#waiter.fail(noMemoryFor(error));
        },
      );
  }

  #readSmall(stream: RequestBodyStream, length: number, room: BodyRoom | undefined, next: () => void): void {
    if (this.#waiter.isDone) return;
    this.#sink.askForBody();
    readExactly(stream, length, (error, bytes) => {
      this.#resume(error, () => {
        this.#keep(bytes);
        this.#finish(room, next);
      });
    });
  }

  #finish(room: BodyRoom | undefined, next: () => void): void {
    room?.finish();
    next();
  }

  /** Reads any body, up to a limit; throws a 413 if it is larger, or fails with it. */
  hold(maxBytes: number, next: () => void): void {
    const { body } = this.#exchange.request;
    if (body.kind !== "stream") {
      next();
      return;
    }
    if (body.length !== undefined && body.length > maxBytes) throw new GatewayError("body_too_large");
    this.#sink.askForBody();
    readBody(this.#exchange, body, maxBytes)
      .then((bytes) => {
        this.#keep(bytes);
        next();
      })
      .catch((error) => {
        if (!this.#waiter.isDone) this.#waiter.fail(error);
      });
  }

  /** How the body begins, which stays in its stream; undefined if it is empty. */
  peek(next: (first: Buffer | undefined) => void): void {
    const { body } = this.#exchange.request;
    if (body.kind !== "stream") {
      next(body.kind === "bytes" ? body.bytes : undefined);
      return;
    }
    this.#sink.askForBody();
    peekFirst(body.stream, (error, first) => {
      this.#resume(error, () => {
        if (first === undefined) this.#keep(Buffer.alloc(0));
        next(first);
      });
    });
  }

  #resume(error: Error | undefined, next: () => void): void {
    if (this.#waiter.isDone) return;
    try {
      if (error) throw error;
      next();
    } catch (thrown) {
      this.#waiter.fail(thrown);
    }
  }

  /** For this attempt, and for those that may follow it. */
  #keep(bytes: Buffer): void {
    const body = { kind: "bytes", bytes } as const;
    this.#exchange.request.body = body;
    if (this.#origin) this.#origin.body = body;
  }
}
