/**
 * Sends the parts of one request and its response to an external processor, and returns the requested changes.
 */
import { utf8Text } from "../../core/service-headers.ts";
import { type Changes, type Immediate, type Modes, overriddenModes, readChanges, readImmediate } from "./changes.ts";
import type { ProcessorStream } from "./client.ts";
import type { ProcessingRequest, ProcessingResponse, Step } from "./protocol.ts";

export interface ProcessingEvents {
  /** Throws if the failure ends the request. Otherwise it continues without the processor. */
  failed(error: Error): void;
  processed(step: Step, details: Readonly<Record<string, string | number | boolean | readonly string[]>>): void;
}

export interface ProcessingOptions {
  readonly timeoutMs: number;
  readonly allowModeOverride: boolean;
  readonly events: ProcessingEvents;
}

export type Answer =
  | { readonly immediate: Immediate; readonly changes?: undefined }
  | { readonly immediate?: undefined; readonly changes: Changes };

export class Processing {
  modes: Modes;
  /** True if the processor is no longer called for this request. */
  isOver = false;
  isRequestBodyDone = false;
  readonly #stream: ProcessorStream;
  readonly #options: ProcessingOptions;

  constructor(stream: ProcessorStream, modes: Modes, options: ProcessingOptions) {
    this.#stream = stream;
    this.modes = modes;
    this.#options = options;
  }

  /** Returns undefined if the processor is no longer called. */
  headers(
    step: "requestHeaders" | "responseHeaders",
    fields: Iterable<readonly [name: string, value: string]>,
    endOfStream: boolean,
  ): Promise<Answer | undefined> {
    const headers = Array.from(fields, ([name, value]) => {
      const rawValue = Buffer.from(value, "latin1");
      return { key: name, value: utf8Text(value), rawValue };
    });
    return this.#exchange(step, { [step]: { headers: { headers }, endOfStream } });
  }

  body(step: "requestBody" | "responseBody", body: Buffer, endOfStream: boolean): Promise<Answer | undefined> {
    return this.#exchange(step, { [step]: { body, endOfStream } });
  }

  /** The processor replaced the request body, so it does not get the client's. */
  skipRequestBody(): void {
    this.isRequestBodyDone = true;
  }

  close(): void {
    this.isOver = true;
    this.#stream.close();
  }

  async #exchange(step: Step, message: ProcessingRequest): Promise<Answer | undefined> {
    if (this.isOver) return undefined;
    try {
      const response = await this.#stream.send(message, this.#options.timeoutMs);
      if (response === undefined) {
        this.isOver = true;
        return undefined;
      }
      return this.#read(step, response);
    } catch (error) {
      this.close();
      this.#options.events.failed(error as Error);
      return undefined;
    }
  }

  #read(step: Step, response: ProcessingResponse): Answer {
    const { events, allowModeOverride } = this.#options;
    if (response.immediateResponse !== undefined) {
      const immediate = readImmediate(response.immediateResponse);
      events.processed(step, { immediateResponse: immediate.status, reason: immediate.details });
      this.close();
      return { immediate };
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
    return { changes };
  }
}
