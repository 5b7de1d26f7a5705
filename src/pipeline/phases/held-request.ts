/**
 * Holds the request for repeated attempts, each of which starts from the request as it left the route phase.
 */
import { peerInput } from "../../base/peer-inputs.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, forkRequest, type GatewayRequest } from "../../core/exchange.ts";
import { noMemoryFor, readBody } from "../../core/read-body.ts";
import type { ClientSink } from "../../core/sink.ts";
import { type BodyMemory, peekFirst, type RequestBodyStream, readExactly } from "../../http/body.ts";

const BODY = peerInput("client/request-body");

/** A body of known length up to this size is read before the backend is called, so that it can be sent again. */
const SMALL_BODY_BYTES = 64 * 1024;

/** `isDone` is true if the client disconnected or received a response in the meantime. */
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

  /** Sets the request from which every attempt starts. */
  remember(): void {
    this.#origin = this.#exchange.request;
  }

  /** Gives the next attempt its own copy, because policies of a backend may change it. */
  restore(): void {
    if (this.#origin) this.#exchange.request = forkRequest(this.#origin);
  }

  /** Buffers a small body, and leaves larger bodies and bodies of unknown length unchanged. */
  holdSmall(next: () => void): void {
    const { body } = this.#exchange.request;
    if (body.kind === "none") next();
    else if (body.kind === "bytes") {
      if (this.#exchange.holdSmallBody(body.bytes.length)) next();
      else this.#reserve(body.bytes.length, (memory) => this.#resume(undefined, () => this.#finish(memory, next)));
    } else if (body.length === undefined || body.length > SMALL_BODY_BYTES) next();
    else this.#reserve(body.length, (memory) => this.#readSmall(body.stream, body.length ?? 0, memory, next));
  }

  /** Calls `granted` when memory for a body of this length is available, or fails. */
  #reserve(length: number, granted: (memory: BodyMemory | undefined) => void): void {
    const memory = this.#exchange.bodyReservation();
    if (memory === undefined) granted(undefined);
    else
      memory.reserve(
        length,
        () => granted(memory),
        (error) => {
          if (!this.#waiter.isDone) this.#waiter.fail(noMemoryFor(error));
        },
      );
  }

  #readSmall(stream: RequestBodyStream, length: number, memory: BodyMemory | undefined, next: () => void): void {
    if (this.#waiter.isDone) return;
    this.#sink.askForBody();
    readExactly(stream, length, (error, bytes) => {
      this.#resume(error, () => {
        this.#keep(bytes);
        this.#finish(memory, next);
      });
    });
  }

  #finish(memory: BodyMemory | undefined, next: () => void): void {
    memory?.finish();
    next();
  }

  /** Reads any body up to a limit. If it is larger, the method throws or fails with a 413. */
  hold(maxBytes: number, next: () => void): void {
    const { body } = this.#exchange.request;
    if (body.kind !== "stream") {
      next();
      return;
    }
    if (body.length !== undefined && body.length > maxBytes) throw new GatewayError("body_too_large");
    this.#sink.askForBody();
    readBody(this.#exchange, body, BODY.upTo(maxBytes))
      .then((bytes) => {
        this.#keep(bytes);
        next();
      })
      .catch((error) => {
        if (!this.#waiter.isDone) this.#waiter.fail(error);
      });
  }

  /**
   * Passes the first chunk of the body to `next` without consuming it. The chunk is undefined if the body is empty.
   */
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

  #keep(bytes: Buffer): void {
    const body = { kind: "bytes", bytes } as const;
    this.#exchange.request.body = body;
    if (this.#origin) this.#origin.body = body;
  }
}
