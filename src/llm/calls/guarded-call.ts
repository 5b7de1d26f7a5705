/**
 * Response guards, between an answer and the client. JSON is held until it is whole; of a stream only the last
 * words are held back, because a pattern may go on in the next event. Large events are looked at in turns, and the
 * provider waits meanwhile. A refusal in a stream that has begun is an error event and a broken connection.
 */

import { InOrder } from "../../base/in-order.ts";
import { finish, inTurns, SLICED_BYTES, type Steps } from "../../base/turns.ts";
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { HeaderList } from "../../http/headers.ts";
import { createSseParser, encodeSseEvent, type SseEvent, type SseParser } from "../../http/sse.ts";
import { parseMembersInSteps, stringifyInSteps } from "../../json/json-steps.ts";
import { isEncoded } from "../encoding/decode-response.ts";
import { GuardRejection, guardParts } from "../guards/guarded-text.ts";
import { createStreamGuard, type StreamGuard } from "../guards/stream-guard.ts";
import { BodyTexts } from "../guards/text-places.ts";
import type { Format } from "../request/dialect.ts";
import type { TextGuard } from "../request/llm-call.ts";
import { errorBody, errorEvent, type LlmError } from "../request/llm-errors.ts";
import { failAfter, isEventStream } from "./native-answer.ts";
import { PassingCall } from "./passing-call.ts";

export const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
export const MAX_EVENT_BYTES = 2 * 1024 * 1024;

/** What it does with the answer's source: nothing more is wanted, or more can be taken. */
type AnsweringRun = Pick<BackendRun, "abort" | "resume">;

interface GuardedStream {
  readonly guard: StreamGuard;
  readonly parser: SseParser;
  readonly order: InOrder;
}

export class GuardedCall extends PassingCall {
  readonly #guards: readonly TextGuard[];
  readonly #format: Format;
  readonly #isLeft: () => boolean;
  #status = 0;
  #headers: HeaderList | undefined;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #stream: GuardedStream | undefined;
  #over = false;
  #out: string[] = [];
  #run: AnsweringRun | undefined;

  /** `isLeft`: nobody waits for the answer any more. */
  constructor(call: BackendCall, guards: readonly TextGuard[], format: Format, isLeft: () => boolean) {
    super(call);
    this.#isLeft = isLeft;
    this.#guards = guards;
    this.#format = format;
  }

  /** Where the answer comes from. */
  from(run: AnsweringRun): void {
    this.#run = run;
  }

  head(status: number, headers: HeaderList): void {
    this.#status = status;
    this.#headers = headers;
    if (status < 400 && isEventStream(headers.get("content-type")) && !isEncoded(headers.get("content-encoding"))) {
      this.#stream = this.#openStream();
      headers.delete("content-length");
      this.call.head(status, headers);
    }
  }

  data(chunk: Buffer): boolean {
    if (this.#over) return true;
    if (this.#stream) {
      const { parser, order } = this.#stream;
      try {
        parser.push(chunk);
      } catch (error) {
        order.afterwards(() => this.#refuse(error));
      }
      return order.isBusy ? false : this.#flush();
    }
    this.#heldBytes += chunk.length;
    this.#held.push(chunk);
    if (this.#heldBytes > MAX_ANSWER_BYTES) this.#tooLarge();
    return true;
  }

  end(trailers?: readonly string[]): void {
    if (this.#over) return;
    if (this.#stream) {
      const { guard, order } = this.#stream;
      this.#guard(guard.end(), true);
      order.afterwards(() => {
        if (this.#over) return;
        this.#over = true;
        this.#flush();
        this.call.end(trailers);
      });
    } else if (this.#heldBytes <= SLICED_BYTES) finish(this.#endWhole());
    else inTurns(this.#endWhole(), this.#isLeft).catch((error) => this.call.fail(error));
  }

  fail(error: unknown): void {
    if (this.#stream) this.#stream.order.afterwards(() => this.#failNow(error));
    else this.#failNow(error);
  }

  #failNow(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#flush();
    this.call.fail(error);
  }

  #openStream(): GuardedStream {
    const guard = createStreamGuard(this.#guards);
    const parser = createSseParser(
      (event) => this.#guard(guard.event(event), event.data.length <= SLICED_BYTES),
      MAX_EVENT_BYTES,
    );
    const order = new InOrder({
      busy: () => undefined,
      idle: () => {
        if (this.#flush() && !this.#over) this.#run?.resume();
      },
      failed: () => this.#failNow(new GatewayError("internal", { detail: "a response guard failed" })),
      isOver: () => this.#over || this.#isLeft(),
    });
    return { guard, parser, order };
  }

  #guard(steps: Steps<SseEvent[]>, isSmall: boolean): void {
    this.#stream?.order.run(caught(steps), isSmall, (outcome) => {
      if (this.#over) return;
      if ("error" in outcome) this.#refuse(outcome.error);
      else this.#take(outcome.events);
    });
  }

  #tooLarge(): void {
    this.#over = true;
    this.#held = [];
    this.#run?.abort();
    const detail = `the answer is larger than the ${MAX_ANSWER_BYTES} bytes that the response guards read`;
    this.call.fail(new GatewayError("backend_response_invalid", { detail }));
  }

  *#endWhole(): Steps<void> {
    const bytes = Buffer.concat(this.#held);
    this.#held = [];
    const headers = this.#headers;
    if (headers === undefined) return;
    let status = this.#status;
    let shown: Buffer | undefined;
    try {
      shown = yield* this.#guardedWhole(bytes, headers);
    } catch (error) {
      if (!(error instanceof GuardRejection)) throw error;
      status = error.status;
      shown = this.#errorBytes(headers, { status, message: error.message, code: "content_rejected" });
    }
    if (shown === undefined) {
      this.call.fail(
        new GatewayError("backend_response_invalid", { detail: "the response guards cannot read the response" }),
      );
      return;
    }
    headers.delete("etag");
    if (shown.length > 0 || headers.has("content-length")) headers.set("content-length", String(shown.length));
    this.call.head(status, headers);
    if (shown.length > 0) this.call.data(shown);
    this.call.end();
  }

  /** Undefined if it cannot be read. Errors of a provider may quote what the model wrote, so they are guarded, too. */
  *#guardedWhole(bytes: Buffer, headers: HeaderList): Steps<Buffer | undefined> {
    if (bytes.length === 0) return bytes;
    const body = yield* parseMembersInSteps(bytes);
    if (body !== undefined) {
      const guarded = yield* new BodyTexts(body, { direction: "response" }).guarded(this.#guards);
      headers.set("content-type", "application/json");
      return Buffer.from(yield* stringifyInSteps(guarded));
    }
    if (this.#status < 400) return undefined;
    if (isEncoded(headers.get("content-encoding"))) {
      headers.delete("content-encoding");
      const message = "the response guards cannot read the error of the provider";
      return this.#errorBytes(headers, { status: this.#status, message, code: "upstream_error" });
    }
    return Buffer.from((yield* guardParts([bytes.toString("utf8")], this.#guards))[0] ?? "");
  }

  #errorBytes(headers: HeaderList, error: LlmError): Buffer {
    headers.set("content-type", "application/json");
    return Buffer.from(JSON.stringify(errorBody(this.#format, error)));
  }

  #refuse(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#flush();
    // A provider whose answer was refused must not go on writing it.
    this.#run?.abort();
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

function* caught(steps: Steps<SseEvent[]>): Steps<{ events: SseEvent[] } | { error: unknown }> {
  try {
    return { events: yield* steps };
  } catch (error) {
    return { error };
  }
}
