/**
 * Opens streams to an external processor. A stream belongs to one request. Responses are matched to messages by their
 * step, because the request and the response of an exchange can overlap.
 */

import type { ClientDuplexStream, MethodDefinition } from "@grpc/grpc-js";
import type { Clock, Timer } from "../../base/clock.ts";
import type { PeerInput } from "../../base/peer-inputs.ts";
import { openGrpcClient } from "../../http/client/grpc-client.ts";
import type { EgressGuard } from "../../http/egress-guard.ts";
import type { TlsOptions } from "../../http/http-client.ts";
import { PROTOCOL, type ProcessingRequest, type ProcessingResponse, SERVICE_NAME, type Step } from "./protocol.ts";

/** Leaves room for headers beside a body. */
const MAX_HEADER_BYTES = 256 * 1024;

const STEPS: readonly Step[] = ["requestHeaders", "requestBody", "responseHeaders", "responseBody"];

export interface ProcessorClient {
  open(): ProcessorStream;
  close(): void;
}

/** Receives the responses to the messages of one step. An immediate response is passed to all receivers. */
export interface StepReceiver {
  response(response: ProcessingResponse): void;
  /** The error is null if the processor closed the stream after at least one response. No call follows. */
  ended(error: Error | null): void;
}

export interface ProcessorStream {
  /**
   * Sends a message that has one response. Rejects if the processor does not respond within the timeout, which starts
   * after `start`. Returns undefined if the processor ended the stream after at least one response, which means that it
   * needs no further messages.
   */
  send(message: ProcessingRequest, timeoutMs: number, start?: Promise<void>): Promise<ProcessingResponse | undefined>;
  /** Receives any number of responses for a step whose messages are sent with `write`. */
  receive(step: Step, receiver: StepReceiver): void;
  /** Resolves when the processor can take another message. Ends the stream if that takes longer than the timeout. */
  write(message: ProcessingRequest, timeoutMs: number): Promise<void>;
  /** Ends the stream because of a failure, and reports it to all receivers. */
  fail(error: Error): void;
  close(): void;
}

type Call = ClientDuplexStream<ProcessingRequest, ProcessingResponse>;

export interface ProcessorClientOptions {
  readonly maxBodyBytes: number;
  readonly egress: EgressGuard;
  readonly tls?: TlsOptions | undefined;
}

export function openProcessorClient(
  input: PeerInput<"protobuf">,
  host: string,
  clock: Clock,
  { maxBodyBytes, egress, tls }: ProcessorClientOptions,
): ProcessorClient {
  const message = input.upTo(maxBodyBytes + MAX_HEADER_BYTES);
  const opening = openGrpcClient(message, host, PROTOCOL, SERVICE_NAME, { egress, tls }).then(({ client, service }) => {
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
  readonly #receivers = new Map<Step, StepReceiver>();
  readonly #writers = new Set<() => void>();
  #isClosed = false;
  #hasResponded = false;
  /** Undefined while the stream is open, and null if the processor closed it without an error. */
  #ended: Error | null | undefined;

  constructor(clock: Clock, opening: Promise<Call>) {
    this.#clock = clock;
    this.#opening = opening;
  }

  send(message: ProcessingRequest, timeoutMs: number, start?: Promise<void>): Promise<ProcessingResponse | undefined> {
    const step = STEPS.find((name) => message[name] !== undefined) as Step;
    return new Promise((resolve, reject) => {
      let timer: Timer | undefined;
      let isWaiting = true;
      const arm = (): void => {
        if (isWaiting)
          timer = this.#clock.after(timeoutMs, () => this.fail(new Error(`no response within ${timeoutMs} ms`)));
      };
      const settle = (): void => {
        isWaiting = false;
        timer?.cancel();
      };
      if (start === undefined) arm();
      else void start.then(arm);
      this.receive(step, {
        response: (response) => {
          this.#receivers.delete(step);
          settle();
          resolve(response);
        },
        ended: (error) => {
          settle();
          if (error === null) resolve(undefined);
          else reject(error);
        },
      });
      void this.#write(message).catch((error: Error) => this.#end(error));
    });
  }

  receive(step: Step, receiver: StepReceiver): void {
    if (this.#ended === undefined) this.#receivers.set(step, receiver);
    else receiver.ended(this.#ended);
  }

  async write(message: ProcessingRequest, timeoutMs: number): Promise<void> {
    const call = await this.#write(message).catch((error: Error) => this.#end(error));
    if (call === undefined || !call.writableNeedDrain) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        timer.cancel();
        call.off("drain", done);
        this.#writers.delete(done);
        resolve();
      };
      const timer = this.#clock.after(timeoutMs, () =>
        this.fail(new Error(`the processor reads no message within ${timeoutMs} ms`)),
      );
      this.#writers.add(done);
      call.once("drain", done);
    });
  }

  fail(error: Error): void {
    this.#end(error);
    this.#cancel();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#end(new Error("the request has ended"));
    this.#cancel();
  }

  async #write(message: ProcessingRequest): Promise<Call | undefined> {
    const call = this.#call ?? this.#follow(await this.#opening);
    if (this.#ended !== undefined) return undefined;
    call.write(message);
    return call;
  }

  #cancel(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    void this.#opening.then((call) => call.cancel()).catch(() => undefined);
  }

  #follow(call: Call): Call {
    if (this.#call !== undefined) return this.#call;
    this.#call = call;
    call.on("data", (response: ProcessingResponse) => this.#received(response));
    call.on("error", (error: Error) => this.#end(error));
    call.on("status", ({ code }) => {
      if (code === 0) this.#end(null);
    });
    return call;
  }

  #received(response: ProcessingResponse): void {
    if (this.#ended !== undefined) return;
    this.#hasResponded = true;
    if (response.immediateResponse !== undefined) {
      for (const receiver of [...this.#receivers.values()]) receiver.response(response);
      this.#release();
      return;
    }
    const step = STEPS.find((name) => response[name] !== undefined);
    const receiver = step === undefined ? undefined : this.#receivers.get(step);
    if (receiver === undefined) this.fail(new Error("a response to a message that was not sent"));
    else receiver.response(response);
  }

  /** A processor that ends the stream without any response has failed. */
  #end(error: Error | null): undefined {
    if (this.#ended !== undefined) return;
    const ended = error ?? (this.#hasResponded ? null : new Error("the processor ended the stream"));
    this.#ended = ended;
    const receivers = [...this.#receivers.values()];
    this.#receivers.clear();
    for (const receiver of receivers) receiver.ended(ended);
    this.#release();
  }

  #release(): void {
    for (const done of [...this.#writers]) done();
  }
}
