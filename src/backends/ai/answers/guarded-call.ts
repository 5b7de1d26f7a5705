/**
 * Response guards, between an answer and the client. JSON is held until it is whole; of a stream only the last
 * words are held back, because a pattern may go on in the next event. A refusal in a stream that has begun is an
 * error event and a broken connection.
 */

import type { BackendCall } from "../../../core/backend.ts";
import { GatewayError } from "../../../core/errors.ts";
import type { HeaderList } from "../../../lib/http/headers.ts";
import { createSseParser, encodeSseEvent, type SseEvent } from "../../../lib/http/sse.ts";
import { finish, inTurns, SLICED_BYTES, type Steps } from "../../../lib/process/turns.ts";
import type { Format } from "../../../llm/dialects/dialect.ts";
import { errorBody, errorEvent } from "../../../llm/dialects/error-shape.ts";
import type { TextGuard } from "../../../llm/dialects/llm-call.ts";
import { GuardRejection, guardSteps, mapTextsInSteps } from "../../../llm/guards/prompt-rules.ts";
import { createStreamGuard, type StreamGuard } from "../../../llm/guards/stream-guard.ts";
import { isEncoded } from "../../../llm/wire/decode-answer.ts";
import { parseMembersInSteps, stringifyInSteps } from "../../../llm/wire/json-steps.ts";
import { failAfter, isEventStream } from "./native-answer.ts";
import { PassingCall } from "./passing-call.ts";

export const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
export const MAX_EVENT_BYTES = 2 * 1024 * 1024;

export class GuardedCall extends PassingCall {
  readonly #guards: readonly TextGuard[];
  readonly #format: Format;
  readonly #isLeft: () => boolean;
  #status = 0;
  #headers: HeaderList | undefined;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #stream: { push(chunk: Buffer): void; guard: StreamGuard } | undefined;
  #passes = false;
  #over = false;
  #out: string[] = [];
  #refused: () => void = () => undefined;

  /** `isLeft`: nobody waits for the answer any more. */
  constructor(call: BackendCall, guards: readonly TextGuard[], format: Format, isLeft: () => boolean) {
    super(call);
    this.#isLeft = isLeft;
    this.#guards = guards;
    this.#format = format;
  }

  /** Called when an answer is refused before its end, before the client hears of it. */
  onRefusal(refused: () => void): void {
    this.#refused = refused;
  }

  head(status: number, headers: HeaderList): void {
    this.#status = status;
    this.#headers = headers;
    if (status >= 400) {
      this.#passes = true;
      this.call.head(status, headers);
    } else if (isEventStream(headers.get("content-type")) && !isEncoded(headers.get("content-encoding"))) {
      const guard = createStreamGuard(this.#guards);
      const parser = createSseParser((event) => this.#take(guard.event(event)), MAX_EVENT_BYTES);
      this.#stream = { push: (chunk) => parser.push(chunk), guard };
      headers.delete("content-length");
      this.call.head(status, headers);
    }
  }

  data(chunk: Buffer): boolean {
    if (this.#over) return true;
    if (this.#passes) return this.call.data(chunk);
    if (this.#stream) {
      const { push } = this.#stream;
      return this.#guarded(() => push(chunk)) ? this.#flush() : true;
    }
    this.#heldBytes += chunk.length;
    this.#held.push(chunk);
    if (this.#heldBytes > MAX_ANSWER_BYTES) this.#tooLarge();
    return true;
  }

  end(trailers?: readonly string[]): void {
    if (this.#over) return;
    if (this.#passes) this.call.end(trailers);
    else if (this.#stream) {
      const { guard } = this.#stream;
      if (!this.#guarded(() => this.#take(guard.end()))) return;
      this.#flush();
      this.call.end(trailers);
    } else if (this.#heldBytes <= SLICED_BYTES) finish(this.#endWhole());
    else inTurns(this.#endWhole(), this.#isLeft).catch((error) => this.call.fail(error));
  }

  fail(error: unknown): void {
    if (!this.#over) this.call.fail(error);
  }

  #tooLarge(): void {
    this.#over = true;
    this.#held = [];
    this.#refused();
    const detail = `the answer is larger than the ${MAX_ANSWER_BYTES} bytes that the response guards read`;
    this.call.fail(new GatewayError("backend_response_invalid", { detail }));
  }

  *#endWhole(): Steps<void> {
    const body = yield* parseMembersInSteps(Buffer.concat(this.#held));
    this.#held = [];
    const headers = this.#headers;
    if (body === undefined || headers === undefined) {
      this.call.fail(
        new GatewayError("backend_response_invalid", { detail: "the response guards cannot read the response" }),
      );
      return;
    }
    let status = this.#status;
    let answer = body;
    try {
      answer = yield* mapTextsInSteps(body, "answer", (text) => guardSteps(text, this.#guards));
    } catch (error) {
      if (!(error instanceof GuardRejection)) throw error;
      status = error.status;
      answer = errorBody(this.#format, { status, message: error.message, code: "content_rejected" });
    }
    const bytes = Buffer.from(yield* stringifyInSteps(answer));
    headers.delete("etag");
    headers.set("content-type", "application/json");
    headers.set("content-length", String(bytes.length));
    this.call.head(status, headers);
    this.call.data(bytes);
    this.call.end();
  }

  /** False if the stream was refused. */
  #guarded(action: () => void): boolean {
    try {
      action();
      return true;
    } catch (error) {
      this.#over = true;
      this.#flush();
      this.#refused();
      const rejected = error instanceof GuardRejection;
      const said = {
        status: rejected ? error.status : 502,
        message: rejected ? error.message : "the response guards cannot read the response",
        code: rejected ? "content_rejected" : "upstream_error",
      };
      failAfter(
        this.call,
        Buffer.from(encodeSseEvent(errorEvent(this.#format, said))),
        new GatewayError("backend_response_invalid", {
          cause: error,
          detail: "a response guard rejected the response",
        }),
      );
      return false;
    }
  }

  #take(events: readonly SseEvent[]): void {
    for (const { event, data, id } of events)
      this.#out.push(
        encodeSseEvent({ ...(event === "message" ? {} : { event }), data, ...(id === undefined ? {} : { id }) }),
      );
  }

  #flush(): boolean {
    if (this.#out.length === 0) return true;
    const text = this.#out.join("");
    this.#out = [];
    return this.call.data(Buffer.from(text));
  }
}
