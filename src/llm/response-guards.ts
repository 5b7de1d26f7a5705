/**
 * Applies response guards in three filters: regular expressions, webhooks, and shadow guards. Shadow guards inspect the
 * output of the others and do not change it.
 */
import { isEncoded } from "../base/decompress.ts";
import { InOrder } from "../base/in-order.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../base/sliced-work.ts";
import type { BackendRun, ResponseReceiver } from "../core/backend.ts";
import { GatewayError } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import { ResponseFilter } from "../core/response-filter.ts";
import type { HeaderList } from "../http/headers.ts";
import { createSseParser, encodeSseEvent, type SseEvent, type SseParser, SseTooLarge } from "../http/sse.ts";
import { isLossless } from "../json/lossless.ts";
import { readMembersInSteps, stringifyInSteps } from "../json/parse-in-steps.ts";
import { checkAll } from "./guards/guard-services.ts";
import { createShadowGuards, GuardRejection, guardParts, type ShadowGuards } from "./guards/guarded-text.ts";
import { createStreamGuard, type StreamGuard, type StreamTexts, streamTexts } from "./guards/stream-guard.ts";
import { BodyTexts } from "./guards/text-places.ts";
import { failAfter, isEventStream } from "./provider-response.ts";
import type { Dialect, Format } from "./request/dialect.ts";
import type { PromptRules, TextGuard } from "./request/llm-call.ts";
import { errorBody, errorEvent, type LlmError } from "./request/llm-errors.ts";
import { EventTooComplex } from "./usage/stream-events.ts";

const RESPONSE = peerInput("llm-provider/guarded-response");
const STREAM = peerInput("llm-provider/event-stream");

const MAX_RESPONSE_BYTES = RESPONSE.maxBytes;

type UpstreamCall = Pick<BackendRun, "abort" | "resume">;

interface GuardedStream {
  readonly guard: StreamGuard;
  readonly parser: SseParser;
  readonly order: InOrder;
}

class GuardedResponse extends ResponseFilter {
  readonly #guards: readonly TextGuard[];
  readonly #format: Format;
  readonly #isClientGone: () => boolean;
  #status = 0;
  #headers: HeaderList | undefined;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #stream: GuardedStream | undefined;
  #over = false;
  #out: string[] = [];
  #run: UpstreamCall | undefined;

  constructor(call: ResponseReceiver, guards: readonly TextGuard[], format: Format, isClientGone: () => boolean) {
    super(call);
    this.#isClientGone = isClientGone;
    this.#guards = guards;
    this.#format = format;
  }

  setUpstream(run: UpstreamCall): void {
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
        order.afterwards(() => this.#reject(error));
      }
      return order.isBusy ? false : this.#flush();
    }
    this.#heldBytes += chunk.length;
    this.#held.push(chunk);
    if (this.#heldBytes > MAX_RESPONSE_BYTES) this.#tooLarge();
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
    else runInSlices(this.#endWhole(), this.#isClientGone).catch((error) => this.call.fail(error));
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
    const parser = createSseParser(STREAM, (event) =>
      this.#guard(guard.event(event), event.data.length <= SLICED_BYTES),
    );
    const order = new InOrder({
      busy: () => undefined,
      idle: () => {
        if (this.#flush() && !this.#over) this.#run?.resume();
      },
      failed: () => this.#failNow(new GatewayError("internal", { detail: "a response guard failed" })),
      isOver: () => this.#over || this.#isClientGone(),
    });
    return { guard, parser, order };
  }

  #guard(steps: Steps<SseEvent[]>, isSmall: boolean): void {
    this.#stream?.order.run(caught(steps), isSmall, (outcome) => {
      if (this.#over) return;
      if ("error" in outcome) this.#reject(outcome.error);
      else this.#take(outcome.events);
    });
  }

  #tooLarge(): void {
    this.#over = true;
    this.#held = [];
    this.#run?.abort();
    const detail = `the answer is larger than the ${MAX_RESPONSE_BYTES} bytes that the response guards read`;
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
      reportRejection(this.call, error);
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

  /**
   * Returns undefined if a successful response is unreadable. Provider errors are guarded too, because they may quote
   * the model's output.
   */
  *#guardedWhole(bytes: Buffer, headers: HeaderList): Steps<Buffer | undefined> {
    if (bytes.length === 0) return bytes;
    const body = yield* readMembersInSteps(RESPONSE, bytes);
    if (body !== undefined) {
      const guarded = yield* new BodyTexts(body, { direction: "response" }).guarded(this.#guards);
      headers.set("content-type", "application/json");
      if (guarded === body && (yield* isLossless(bytes, body))) return bytes;
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

  #reject(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#flush();
    this.#run?.abort();
    const rejected = error instanceof GuardRejection;
    const rejection = {
      status: rejected ? error.status : 502,
      message: rejected ? error.message : "the response guards cannot read the response",
      code: rejected ? "content_rejected" : "upstream_error",
    };
    failAfter(
      this.call,
      Buffer.from(encodeSseEvent(errorEvent(this.#format, rejection))),
      new GatewayError(rejected ? "content_rejected" : "backend_response_invalid", {
        cause: error,
        detail: rejected ? rejectionReason(error) : rejection.message,
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

function reportRejection(call: ResponseReceiver, error: GuardRejection): void {
  call.problem({
    code: "content_rejected",
    source: "client",
    reason: rejectionReason(error),
    said: "content_rejected",
  });
}

function rejectionReason({ message }: GuardRejection): string {
  return `a response guard rejected the response: ${message}`;
}

function* caught(steps: Steps<SseEvent[]>): Steps<{ events: SseEvent[] } | { error: unknown }> {
  try {
    return { events: yield* steps };
  } catch (error) {
    return { error };
  }
}

const PARSED_BYTES = 16 * 1024;

class WebhookGuardedResponse extends ResponseFilter {
  readonly #check: (texts: readonly string[]) => Promise<readonly string[]>;
  readonly #format: Format;
  readonly #isClientGone: () => boolean;
  #status = 0;
  #headers: HeaderList | undefined;
  #held: Buffer[] = [];
  #bytes = 0;
  #over = false;

  constructor(
    call: ResponseReceiver,
    format: Format,
    check: (texts: readonly string[]) => Promise<readonly string[]>,
    isClientGone: () => boolean,
  ) {
    super(call);
    this.#isClientGone = isClientGone;
    this.#format = format;
    this.#check = check;
  }

  head(status: number, headers: HeaderList): void {
    this.#status = status;
    this.#headers = headers;
  }

  data(chunk: Buffer): boolean {
    if (this.#over) return true;
    this.#bytes += chunk.length;
    this.#held.push(chunk);
    if (this.#bytes > MAX_RESPONSE_BYTES) this.#rejectUnread(`the answer is larger than ${MAX_RESPONSE_BYTES} bytes`);
    return true;
  }

  end(): void {
    if (!this.#over) this.#checkWhole().catch((error) => this.call.fail(error));
  }

  fail(error: unknown): void {
    this.#over = true;
    this.call.fail(error);
  }

  async #checkWhole(): Promise<void> {
    const bytes = Buffer.concat(this.#held);
    this.#held = [];
    try {
      const checked = isEventStream(this.#headers?.get("content-type"))
        ? await this.#checkStream(bytes)
        : await this.#checkJson(bytes);
      if (checked === undefined) this.#rejectUnread("it cannot be read");
      else this.#send(this.#status, checked);
    } catch (error) {
      if (!(error instanceof GuardRejection)) throw error;
      const { status, message } = error;
      reportRejection(this.call, error);
      this.#headers?.set("content-type", "application/json");
      const rejection = errorBody(this.#format, { status, message, code: "content_rejected" });
      this.#send(status, Buffer.from(JSON.stringify(rejection)));
    }
  }

  #run<T>(steps: Steps<T>): T | Promise<T> {
    return this.#bytes > SLICED_BYTES ? runInSlices(steps, this.#isClientGone) : finish(steps);
  }

  async #checkJson(bytes: Buffer): Promise<Buffer | undefined> {
    if (bytes.length === 0) return bytes;
    const body = await this.#run(readMembersInSteps(RESPONSE, bytes));
    if (body === undefined) return this.#status < 400 ? undefined : await this.#checkText(bytes);
    const found = new BodyTexts(body, { direction: "response" });
    const checked = await this.#check(found.texts);
    const shown = found.replaced(checked);
    if (shown === body && (await this.#run(isLossless(bytes, body)))) return bytes;
    return Buffer.from(await this.#run(stringifyInSteps(shown)));
  }

  async #checkText(bytes: Buffer): Promise<Buffer | undefined> {
    if (isEncoded(this.#headers?.get("content-encoding"))) return undefined;
    const [checked = ""] = await this.#check([bytes.toString("utf8")]);
    return Buffer.from(checked);
  }

  async #checkStream(bytes: Buffer): Promise<Buffer | undefined> {
    const found = await this.#run(readStream(bytes));
    if (found === undefined) return undefined;
    const checked = await this.#check(found.texts);
    return await this.#run(writeStream(found, checked));
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

  #rejectUnread(why: string): void {
    this.#over = true;
    this.#held = [];
    this.call.fail(new GatewayError("backend_response_invalid", { detail: `the response guards: ${why}` }));
  }
}

function* readStream(bytes: Buffer): Steps<StreamTexts | undefined> {
  const events: SseEvent[] = [];
  const parser = createSseParser(STREAM, (event) => events.push(event));
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

function* writeStream(found: StreamTexts, checked: readonly string[]): Steps<Buffer> {
  const written: Buffer[] = [];
  for (const { event, data, id } of yield* found.replaced(checked)) {
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

interface Reader {
  data(chunk: Buffer): void;
  end(onDone: () => void): void;
}

/** Returns `call` itself if there are no shadow guards or they cannot read the stream. */
function shadowGuarded(
  call: ResponseReceiver,
  exchange: Exchange,
  guards: readonly TextGuard[] | undefined,
  isForeignStream: boolean,
): ResponseReceiver {
  if (guards === undefined) return call;
  const watch = createShadowGuards(exchange, "response");
  if (!isForeignStream) return new ShadowGuardedResponse(call, guards, watch, () => exchange.isOver);
  watch.unread(guards, "this kind of stream cannot be read");
  return call;
}

class ShadowGuardedResponse extends ResponseFilter {
  readonly #guards: readonly TextGuard[];
  readonly #watch: ShadowGuards;
  readonly #isClientGone: () => boolean;
  #reader: Reader | undefined;
  #hasEnded = false;

  constructor(call: ResponseReceiver, guards: readonly TextGuard[], watch: ShadowGuards, isClientGone: () => boolean) {
    super(call);
    this.#isClientGone = isClientGone;
    this.#guards = guards;
    this.#watch = watch;
  }

  head(status: number, headers: HeaderList): void {
    if (status < 400) {
      const isStream = isEventStream(headers.get("content-type")) && !isEncoded(headers.get("content-encoding"));
      this.#reader = isStream ? this.#streamReader() : this.#wholeReader();
    }
    this.call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    this.#inspect((reader) => reader.data(chunk));
    return this.call.data(chunk);
  }

  end(trailers?: readonly string[]): void {
    // The findings must be recorded before the request is settled, so the end of the response is delayed.
    const onDone = (): void => {
      if (this.#hasEnded) return;
      this.#hasEnded = true;
      this.#reader = undefined;
      this.call.end(trailers);
    };
    this.#inspect((reader) => reader.end(onDone));
    if (this.#reader === undefined) onDone();
  }

  fail(error: unknown): void {
    this.#reader = undefined;
    this.call.fail(error);
  }

  /** Catches errors of the shadow guards, so that they do not affect the response. */
  #inspect<T>(action: (reader: Reader) => T): T | undefined {
    if (this.#reader === undefined) return undefined;
    try {
      return action(this.#reader);
    } catch {
      this.#unreadable();
      return undefined;
    }
  }

  #unreadable(): void {
    if (this.#reader === undefined) return;
    this.#reader = undefined;
    this.#watch.unread(this.#guards, "the answer cannot be read");
  }

  #streamReader(): Reader {
    const guard = createStreamGuard(this.#guards, (one) => this.#watch.found(one));
    let ended: (() => void) | undefined;
    const failed = (): void => {
      this.#unreadable();
      ended?.();
    };
    const order = new InOrder({
      busy: () => undefined,
      idle: () => undefined,
      failed,
      isOver: () => this.#reader === undefined || this.#isClientGone(),
    });
    /** The stream continues while a large event is inspected, so the size of the waiting events is limited. */
    let waitingChars = 0;
    const parser = createSseParser(STREAM, (event) => {
      const size = event.data.length;
      waitingChars += size;
      if (waitingChars > MAX_RESPONSE_BYTES) throw new Error("too large");
      order.run(guard.event(event), size <= SLICED_BYTES, () => {
        waitingChars -= size;
      });
    });
    return {
      data: (chunk) => parser.push(chunk),
      end(onDone) {
        ended = onDone;
        order.run(guard.end(), true, () => undefined);
        order.afterwards(onDone);
      },
    };
  }

  #wholeReader(): Reader {
    const held: Buffer[] = [];
    let bytes = 0;
    return {
      data(chunk) {
        bytes += chunk.length;
        if (bytes > MAX_RESPONSE_BYTES) throw new Error("too large");
        held.push(chunk);
      },
      end: (onDone) => {
        const looking = this.#inspectWhole(Buffer.concat(held));
        if (bytes > SLICED_BYTES)
          runInSlices(looking, this.#isClientGone)
            .catch(() => this.#unreadable())
            .finally(onDone);
        else {
          finish(looking);
          onDone();
        }
      },
    };
  }

  *#inspectWhole(bytes: Buffer): Steps<void> {
    const body = yield* readMembersInSteps(RESPONSE, bytes);
    if (body === undefined) throw new Error("not JSON");
    yield* new BodyTexts(body, { direction: "response" }).guarded(this.#guards, (guard) => this.#watch.found(guard));
  }
}

export interface GuardedReceiver {
  readonly receiver: ResponseReceiver;
  /** Must be called before the first byte, because guards can abort and resume the upstream call. */
  setUpstream(run: Pick<BackendRun, "abort" | "resume">): void;
}

export type ResponseGuards = (receiver: ResponseReceiver) => GuardedReceiver;

/** Returns `unreadable` if an enforced guard cannot read the kind of stream that the client requested. */
export function createResponseGuards(
  { rules, model }: { readonly rules: PromptRules; readonly model: string | undefined },
  { format, pathStream }: Dialect,
  exchange: Exchange,
): "unreadable" | ResponseGuards {
  const { responseGuards: guards, responseWebhooks: webhooks, watchedResponses } = rules;
  const isForeignStream = (format === "converse" || format === "invoke") && pathStream === true;
  if ((guards || webhooks) && isForeignStream) return "unreadable";
  // Guards cannot read compressed responses.
  if (webhooks || guards) exchange.request.headers.set("accept-encoding", "identity");
  return (call) => {
    const watched = shadowGuarded(call, exchange, watchedResponses, isForeignStream);
    const checked = webhooks
      ? new WebhookGuardedResponse(
          watched,
          format,
          (texts) => checkAll(webhooks, { direction: "response", model, texts }),
          () => exchange.isOver,
        )
      : watched;
    if (guards === undefined) return { receiver: checked, setUpstream: () => undefined };
    const guarded = new GuardedResponse(checked, guards, format, () => exchange.isOver);
    return { receiver: guarded, setUpstream: (run) => guarded.setUpstream(run) };
  };
}
