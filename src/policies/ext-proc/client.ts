/**
 * Opens streams to an external processor. A stream belongs to one request, and carries one message at a time.
 */
import type { ClientDuplexStream, MethodDefinition } from "@grpc/grpc-js";
import type { Clock, Timer } from "../../base/clock.ts";
import { openGrpcClient } from "../../http/client/grpc-client.ts";
import { PROTOCOL, type ProcessingRequest, type ProcessingResponse, SERVICE_NAME } from "./protocol.ts";

/** Leaves room for headers beside a body. */
const MAX_HEADER_BYTES = 256 * 1024;

export interface ProcessorClient {
  open(): ProcessorStream;
  close(): void;
}

export interface ProcessorStream {
  /**
   * Rejects if the processor does not respond within the timeout. Returns undefined if the processor ended the stream
   * after at least one response, which means that it needs no further messages.
   */
  send(message: ProcessingRequest, timeoutMs: number): Promise<ProcessingResponse | undefined>;
  close(): void;
}

type Call = ClientDuplexStream<ProcessingRequest, ProcessingResponse>;

export function openProcessorClient(
  host: string,
  clock: Clock,
  maxBodyBytes: number,
  isConfined: boolean,
): ProcessorClient {
  const opening = openGrpcClient(host, PROTOCOL, SERVICE_NAME, {
    isConfined,
    maxResponseBytes: maxBodyBytes + MAX_HEADER_BYTES,
  }).then(({ client, service }) => {
    const method = service.Process as MethodDefinition<ProcessingRequest, ProcessingResponse>;
    return {
      client,
      start: (): Call => client.makeBidiStreamRequest(method.path, method.requestSerialize, method.responseDeserialize),
    };
  });
  // Each stream reports the failure. Without a stream, the unhandled rejection would be logged as a defect.
  opening.catch(() => undefined);
  return {
    open: () =>
      new Stream(
        clock,
        opening.then(({ start }) => start()),
      ),
    close: () => void opening.then(({ client }) => client.close()).catch(() => undefined),
  };
}

class Stream implements ProcessorStream {
  readonly #clock: Clock;
  readonly #opening: Promise<Call>;
  #call: Call | undefined;
  #waiting: ((response: ProcessingResponse | undefined, error?: Error) => void) | undefined;
  #isClosed = false;
  #hasResponded = false;
  /** Undefined while the stream is open, and null if the processor closed it without an error. */
  #ended: Error | null | undefined;

  constructor(clock: Clock, opening: Promise<Call>) {
    this.#clock = clock;
    this.#opening = opening;
  }

  async send(message: ProcessingRequest, timeoutMs: number): Promise<ProcessingResponse | undefined> {
    const call = this.#call ?? this.#follow(await this.#opening);
    if (this.#isClosed) throw new Error("the request has ended");
    if (this.#ended === null) return undefined;
    if (this.#ended !== undefined) throw this.#ended;
    return new Promise((resolve, reject) => {
      const timer: Timer = this.#clock.after(timeoutMs, () => {
        this.#settle(undefined, new Error(`no response within ${timeoutMs} ms`));
        this.close();
      });
      this.#waiting = (response, error) => {
        timer.cancel();
        if (error !== undefined) reject(error);
        else resolve(response);
      };
      call.write(message);
    });
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#settle(undefined, new Error("the request has ended"));
    void this.#opening.then((call) => call.cancel()).catch(() => undefined);
  }

  #settle(response: ProcessingResponse | undefined, error?: Error): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.(response, error);
  }

  #follow(call: Call): Call {
    this.#call = call;
    call.on("data", (response: ProcessingResponse) => {
      if (this.#waiting === undefined && !this.#isClosed) this.#end(new Error("a response without a message"));
      else {
        this.#hasResponded = true;
        this.#settle(response);
      }
    });
    call.on("error", (error: Error) => this.#end(error));
    call.on("status", ({ code }) => {
      if (code === 0) this.#end(null);
    });
    return call;
  }

  /** A processor that ends the stream without any response has failed. */
  #end(error: Error | null): void {
    this.#ended ??= error ?? (this.#hasResponded ? null : new Error("the processor ended the stream"));
    this.#settle(undefined, this.#ended ?? undefined);
  }
}
