/**
 * Sends the parts of one request and its response to an external processor, and returns the requested changes.
 */
import type { Clock } from "../../base/clock.ts";
import type { MemoryAccount } from "../../base/memory-budget.ts";
import { GatewayError } from "../../core/errors.ts";
import { type HeaderOption, utf8Text } from "../service-headers.ts";
import {
  bodyModeNumber,
  type Changes,
  type Immediate,
  type Modes,
  overriddenModes,
  readChanges,
  readImmediate,
} from "./changes.ts";
import type { ProcessorStream } from "./client.ts";
import { DuplexBody } from "./duplex-body.ts";
import type { ProcessingRequest, ProcessingResponse, Step, WireStruct } from "./protocol.ts";

export interface ProcessingEvents {
  /** Throws if the failure ends the request. Otherwise it continues without the processor. */
  failed(error: Error): void;
  processed(step: Step, details: Readonly<Record<string, string | number | boolean | readonly string[]>>): void;
}

export interface ProcessingOptions {
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly allowModeOverride: boolean;
  /** The largest part of a body that waits for the processor in the mode `fullDuplexStreamed`. */
  readonly maxBodyBytes: number;
  readonly memory: MemoryAccount | undefined;
  readonly events: ProcessingEvents;
}

export type Answer =
  | { readonly immediate: Immediate; readonly changes?: undefined }
  | {
      readonly immediate?: undefined;
      readonly changes: Changes;
      /** Includes headers that the processor may not change. */
      readonly sentHeaders?: readonly HeaderOption[];
      readonly metadata?: WireStruct | null;
    };

export interface HeaderOptions {
  /** True if the processor may wait for the body before it responds. */
  readonly isDuplex?: boolean;
  readonly metadata?: Readonly<Record<string, WireStruct>>;
}

interface WholeAnswer {
  readonly headers: Answer;
  /** Undefined if the body does not change. */
  readonly body: Buffer | undefined;
}

/** Changes a body while it is forwarded. The caller passes each part to `send` and then calls `end`. */
interface DuplexFilter {
  /** Returns bytes to forward unchanged, which are empty while the processor handles the body. */
  send(chunk: Buffer): Promise<Buffer | Immediate>;
  end(): Promise<Buffer | Immediate>;
}

type Fields = Iterable<readonly [name: string, value: string]>;

const EMPTY = Buffer.alloc(0);

export class Processing {
  modes: Modes;
  /** True if the processor is no longer called for this request. */
  isOver = false;
  isRequestBodyDone = false;
  readonly #stream: ProcessorStream;
  readonly #options: ProcessingOptions;
  #isClosed = false;
  #hasFailed = false;
  #isFirst = true;
  /** The error of a failure that ended the request. */
  #thrown: unknown = undefined;
  #answered: Immediate | undefined;
  #onEndSent: (() => void) | undefined;

  constructor(stream: ProcessorStream, modes: Modes, options: ProcessingOptions) {
    this.#stream = stream;
    this.modes = modes;
    this.#options = options;
  }

  /** Returns undefined if the processor is no longer called. */
  async headers(
    step: "requestHeaders" | "responseHeaders",
    fields: Fields,
    endOfStream: boolean,
    { isDuplex = false, metadata }: HeaderOptions = {},
  ): Promise<Answer | undefined> {
    const headers = Array.from(fields, ([name, value]) => {
      const rawValue = Buffer.from(value, "latin1");
      return { key: name, value: utf8Text(value), rawValue };
    });
    const context = metadata === undefined ? {} : { metadataContext: { filterMetadata: metadata } };
    return this.#exchange(step, { [step]: { headers: { headers }, endOfStream }, ...context }, isDuplex);
  }

  body(step: "requestBody" | "responseBody", body: Buffer, endOfStream: boolean): Promise<Answer | undefined> {
    return this.#exchange(step, { [step]: { body, endOfStream } });
  }

  /**
   * Sends the request's headers and buffered body in the mode FULL_DUPLEX_STREAMED. Returns undefined if the processor
   * is no longer called.
   */
  async whole(fields: Fields, bytes: Buffer): Promise<WholeAnswer | undefined> {
    const answering = this.headers("requestHeaders", fields, false, { isDuplex: true });
    // The rejection is handled below, after the body was sent.
    answering.catch(() => undefined);
    const body = await this.wholeBody(bytes);
    const headers = body?.immediate === undefined ? await answering : body;
    return headers && { headers, body: body?.changes?.body };
  }

  /** Sends a buffered request body in the mode FULL_DUPLEX_STREAMED. */
  async wholeBody(bytes: Buffer): Promise<Answer | undefined> {
    if (this.isOver) return undefined;
    const { maxBodyBytes, memory } = this.#options;
    const output: Buffer[] = [];
    let outputBytes = 0;
    const body = this.#openBody("requestBody", undefined, (part) => {
      outputBytes += part.length;
      if (outputBytes > maxBodyBytes) this.#stream.fail(new Error("a body that is too large"));
      else if (memory?.tryGrow(part.length) === false)
        this.#stream.fail(new Error("not enough memory for the new body"));
      else output.push(part);
    });
    body.hold(bytes, true);
    await body.flush();
    await body.finished();
    const immediate = this.#immediateOf("requestBody", body.immediate);
    if (immediate) return { immediate };
    if (!body.isComplete) {
      this.#stopped(body);
      return undefined;
    }
    const changed = Buffer.concat(output);
    const isSame = changed.equals(bytes);
    this.#options.events.processed("requestBody", isSame ? {} : { bodyBytes: changed.length });
    const none = { set: [], remove: [], replacesAll: false, status: undefined };
    return { changes: { ...none, body: isSame ? undefined : changed } };
  }

  /**
   * `output` receives the new body. If too much of the body waits for the processor, an optional processor is no longer
   * called, and without one the promise is rejected.
   */
  duplex(step: "requestBody" | "responseBody", output: (bytes: Buffer) => void, isOptional = false): DuplexFilter {
    let body = this.isOver ? undefined : this.#openBody(step, this.#options.memory, output);
    const pass = async (chunk: Buffer, isLast: boolean): Promise<Buffer | Immediate> => {
      if (body === undefined) return chunk;
      let isHeld = false;
      try {
        if (body.failure === undefined) {
          body.hold(chunk, isLast);
          isHeld = true;
          await body.flush();
        }
      } catch (error) {
        if (!isOptional) throw error;
        this.close();
      }
      if (isLast) await body.finished();
      const immediate = this.#immediateOf(step, body.immediate);
      if (immediate) return immediate;
      if (body.failure === undefined) return EMPTY;
      const held = body.release();
      this.#stopped(body, held === undefined);
      body = undefined;
      const unprocessed = held ?? EMPTY;
      return isHeld ? unprocessed : Buffer.concat([unprocessed, chunk]);
    };
    return { send: (chunk) => pass(chunk, false), end: () => pass(EMPTY, true) };
  }

  /** True if the failure of the processor was reported. */
  get hasFailed(): boolean {
    return this.#hasFailed;
  }

  /** The processor replaced the request body, so it does not get the client's. */
  skipRequestBody(): void {
    this.isRequestBodyDone = true;
  }

  close(): void {
    this.isOver = true;
    this.#isClosed = true;
    this.#options.memory?.close();
    this.#stream.close();
  }

  #openBody(
    step: "requestBody" | "responseBody",
    memory: MemoryAccount | undefined,
    output: (bytes: Buffer) => void,
  ): DuplexBody {
    const { clock, timeoutMs, maxBodyBytes } = this.#options;
    const endSent = (): void => this.#onEndSent?.();
    return new DuplexBody(this.#stream, step, { clock, timeoutMs, maxBytes: maxBodyBytes, memory, output, endSent });
  }

  /** Handles a stream that ended before the body was complete. Throws if the request cannot continue. */
  #stopped({ failure }: DuplexBody, isPartial = false): void {
    if (failure === null && !isPartial) this.isOver = true;
    else this.#failed(failure ?? new Error("the processor ended the stream within a body"), isPartial);
  }

  /** Returns only if the request continues without the processor. */
  #failed(error: Error, isPartial = false): void {
    if (this.#thrown !== undefined) throw this.#thrown;
    // If the stream is closed, the exchange is over, or the failure was reported.
    if (!this.#isClosed) {
      this.close();
      this.#hasFailed = true;
      try {
        this.#options.events.failed(error);
      } catch (thrown) {
        this.#thrown = thrown;
        throw thrown;
      }
    }
    if (isPartial)
      throw new GatewayError("not_ready", {
        message: "the external processor is not available",
        detail: `the body is incomplete: ${error.message}`,
        cause: error,
      });
  }

  async #exchange(step: Step, message: ProcessingRequest, isDuplex = false): Promise<Answer | undefined> {
    if (this.isOver) return undefined;
    const { timeoutMs } = this.#options;
    const bodySent = new Promise<void>((resolve) => {
      this.#onEndSent = resolve;
    });
    try {
      const response = await this.#stream.send(this.#withConfig(message), timeoutMs, isDuplex ? bodySent : undefined);
      if (response === undefined) {
        this.isOver = true;
        return undefined;
      }
      return this.#read(step, response);
    } catch (error) {
      this.#failed(error as Error);
      return undefined;
    }
  }

  /** The first message contains the modes, as in Envoy. */
  #withConfig(message: ProcessingRequest): ProcessingRequest {
    if (!this.#isFirst) return message;
    this.#isFirst = false;
    const { requestBody, responseBody } = this.modes;
    const protocolConfig = {
      requestBodyMode: bodyModeNumber(requestBody),
      responseBodyMode: bodyModeNumber(responseBody),
    };
    return { ...message, protocolConfig };
  }

  /** An invalid response is a failure. */
  #immediateOf(step: Step, response: ProcessingResponse | undefined): Immediate | undefined {
    if (this.#answered !== undefined || response?.immediateResponse === undefined) return this.#answered;
    try {
      this.#answered = readImmediate(response.immediateResponse);
    } catch (error) {
      this.#stream.fail(error as Error);
      this.#failed(error as Error);
      return undefined;
    }
    const { status, details } = this.#answered;
    this.#options.events.processed(step, { immediateResponse: status, reason: details });
    this.close();
    return this.#answered;
  }

  #read(step: Step, response: ProcessingResponse): Answer | undefined {
    const { events, allowModeOverride } = this.#options;
    if (response.immediateResponse !== undefined) {
      const immediate = this.#immediateOf(step, response);
      return immediate && { immediate };
    }
    const part = response[step];
    if (part === undefined) throw new Error(`a response to another message than ${step}`);
    const changes = readChanges(part.response, step);
    const { modeOverride } = response;
    // An override in response to a body is ignored, as in Envoy.
    if (modeOverride !== null && (step === "requestHeaders" || step === "responseHeaders"))
      this.modes = overriddenModes(this.modes, modeOverride, step, allowModeOverride);
    events.processed(step, {
      set: changes.set.map(({ name }) => name),
      removed: [...changes.remove],
      ...(changes.body === undefined ? {} : { bodyBytes: changes.body.length }),
    });
    const sentHeaders = part.response?.headerMutation?.setHeaders ?? [];
    return { changes, sentHeaders, metadata: response.dynamicMetadata };
  }
}
