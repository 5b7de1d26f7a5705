/**
 * Response guards that somebody else runs. An answer is held until it is whole, because a verdict is about all of it; a stream
 * goes out as a stream once it was judged. Nothing has been sent when it is refused, so a refusal has a status of its own.
 */

import { finish, inTurns, SLICED_BYTES, type Steps } from "../../base/turns.ts";
import type { BackendCall } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { HeaderList } from "../../http/headers.ts";
import { createSseParser, encodeSseEvent, type SseEvent, SseTooLarge } from "../../http/sse.ts";
import { parseMembersInSteps, stringifyInSteps } from "../../json/json-steps.ts";
import { isEncoded } from "../encoding/decode-response.ts";
import { EventTooComplex } from "../encoding/stream-events.ts";
import { GuardRejection } from "../guards/guarded-text.ts";
import { type StreamTexts, streamTexts } from "../guards/stream-guard.ts";
import { BodyTexts } from "../guards/text-places.ts";
import type { Format } from "../request/dialect.ts";
import { errorBody } from "../request/llm-errors.ts";
import { MAX_ANSWER_BYTES, MAX_EVENT_BYTES } from "./guarded-call.ts";
import { isEventStream } from "./native-answer.ts";
import { PassingCall } from "./passing-call.ts";

/** Of a stream, in one step. */
const PARSED_BYTES = 16 * 1024;

export class WebhookCall extends PassingCall {
  readonly #judge: (texts: readonly string[]) => Promise<readonly string[]>;
  readonly #format: Format;
  readonly #isLeft: () => boolean;
  #status = 0;
  #headers: HeaderList | undefined;
  #held: Buffer[] = [];
  #bytes = 0;
  #over = false;

  /** `isLeft`: nobody waits for the answer any more. */
  constructor(
    call: BackendCall,
    format: Format,
    judge: (texts: readonly string[]) => Promise<readonly string[]>,
    isLeft: () => boolean,
  ) {
    super(call);
    this.#isLeft = isLeft;
    this.#format = format;
    this.#judge = judge;
  }

  head(status: number, headers: HeaderList): void {
    this.#status = status;
    this.#headers = headers;
  }

  data(chunk: Buffer): boolean {
    if (this.#over) return true;
    this.#bytes += chunk.length;
    this.#held.push(chunk);
    if (this.#bytes > MAX_ANSWER_BYTES) this.#refuseUnread(`the answer is larger than ${MAX_ANSWER_BYTES} bytes`);
    return true;
  }

  end(): void {
    if (!this.#over) this.#judgeWhole().catch((error) => this.call.fail(error));
  }

  fail(error: unknown): void {
    this.#over = true;
    this.call.fail(error);
  }

  async #judgeWhole(): Promise<void> {
    const bytes = Buffer.concat(this.#held);
    this.#held = [];
    try {
      const judged = isEventStream(this.#headers?.get("content-type"))
        ? await this.#judgeStream(bytes)
        : await this.#judgeJson(bytes);
      if (judged === undefined) this.#refuseUnread("it cannot be read");
      else this.#send(this.#status, judged);
    } catch (error) {
      if (!(error instanceof GuardRejection)) throw error;
      const { status, message } = error;
      this.#headers?.set("content-type", "application/json");
      const said = errorBody(this.#format, { status, message, code: "content_rejected" });
      this.#send(status, Buffer.from(JSON.stringify(said)));
    }
  }

  #run<T>(steps: Steps<T>): T | Promise<T> {
    return this.#bytes > SLICED_BYTES ? inTurns(steps, this.#isLeft) : finish(steps);
  }

  async #judgeJson(bytes: Buffer): Promise<Buffer | undefined> {
    if (bytes.length === 0) return bytes;
    const body = await this.#run(parseMembersInSteps(bytes));
    if (body === undefined) return this.#status < 400 ? undefined : await this.#judgeText(bytes);
    const found = new BodyTexts(body, { direction: "response" });
    const judged = await this.#judge(found.texts);
    const shown = found.replaced(judged);
    return shown === body ? bytes : Buffer.from(await this.#run(stringifyInSteps(shown)));
  }

  /** Of an error that is no JSON. */
  async #judgeText(bytes: Buffer): Promise<Buffer | undefined> {
    if (isEncoded(this.#headers?.get("content-encoding"))) return undefined;
    const [judged = ""] = await this.#judge([bytes.toString("utf8")]);
    return Buffer.from(judged);
  }

  async #judgeStream(bytes: Buffer): Promise<Buffer | undefined> {
    const found = await this.#run(readStream(bytes));
    if (found === undefined) return undefined;
    const judged = await this.#judge(found.texts);
    return await this.#run(writeStream(found, judged));
  }

  #send(status: number, bytes: Buffer): void {
    const headers = this.#headers;
    if (headers === undefined) return;
    headers.delete("etag");
    if (isEventStream(headers.get("content-type"))) headers.delete("content-length");
    else headers.set("content-length", String(bytes.length));
    this.call.head(status, headers);
    this.call.data(bytes);
    this.call.end();
  }

  #refuseUnread(why: string): void {
    this.#over = true;
    this.#held = [];
    this.call.fail(new GatewayError("backend_response_invalid", { detail: `the response guards: ${why}` }));
  }
}

/** Undefined if it cannot be read. */
function* readStream(bytes: Buffer): Steps<StreamTexts | undefined> {
  const events: SseEvent[] = [];
  const parser = createSseParser((event) => events.push(event), MAX_EVENT_BYTES);
  try {
    for (let at = 0; at < bytes.length; at += PARSED_BYTES) {
      parser.push(bytes.subarray(at, at + PARSED_BYTES));
      yield;
    }
    return yield* streamTexts(events);
  } catch (error) {
    if (error instanceof SseTooLarge || error instanceof EventTooComplex) return undefined;
    throw error;
  }
}

function* writeStream(found: StreamTexts, judged: readonly string[]): Steps<Buffer> {
  const written: Buffer[] = [];
  for (const { event, data, id } of yield* found.replaced(judged)) {
    const text = encodeSseEvent({
      ...(event === "message" ? {} : { event }),
      data,
      ...(id === undefined ? {} : { id }),
    });
    written.push(Buffer.from(text));
    yield;
  }
  return Buffer.concat(written);
}
