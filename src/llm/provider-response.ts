/**
 * Delivers a provider's response to the client. `NativeResponse` forwards it and counts the usage. `TranslatedResponse`
 * buffers JSON until it is complete and translates streams event by event.
 */
import { decompressLater, isEncoded } from "../base/decompress.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { finish, runInSlices, SLICED_BYTES, type Steps } from "../base/sliced-work.ts";
import type { ResponseReceiver } from "../core/backend.ts";
import { GatewayError } from "../core/errors.ts";
import type { HeaderList } from "../http/headers.ts";
import { createSseParser, encodeSseEvent } from "../http/sse.ts";
import { isMembers, type Members } from "../json/json.ts";
import { readMembersInSteps, stringifyInSteps } from "../json/parse-in-steps.ts";
import { UpstreamResponseError } from "./dialects/conversation.ts";
import type { OutEvent, StreamTranslation, Translation } from "./dialects/translation.ts";
import type { Format } from "./request/dialect.ts";
import { clientError, errorBody, errorEvent } from "./request/llm-errors.ts";
import type { ResponseSettlement } from "./settlement.ts";
import type { UpstreamPlan } from "./upstream-request.ts";
import { createUsageHider, type UsageHider } from "./usage/hide-usage.ts";
import { createUsageTap, type UsageTap } from "./usage/response-usage.ts";
import { createEventStreamReader, parseEvent, usageEventAt } from "./usage/stream-events.ts";
import { readHeaderUsage } from "./usage/usage.ts";

const RESPONSE = peerInput("llm-provider/response");
const STREAM = peerInput("llm-provider/event-stream");
const AWS_EVENTS = peerInput("llm-provider/bedrock-stream");

export interface ProviderResponse {
  head(status: number, headers: HeaderList): void;
  data(chunk: Buffer): boolean;
  end(trailers: readonly string[]): void;
  fail(error: unknown): void;
  abort(): void;
}

export class NativeResponse implements ProviderResponse {
  readonly #call: ResponseReceiver;
  readonly #format: Format;
  readonly #settlement: ResponseSettlement;
  readonly #hidesUsage: boolean;
  #tap: UsageTap | undefined;
  #hider: UsageHider | undefined;
  #isEventStream = false;
  #status = 0;

  constructor(call: ResponseReceiver, format: Format, settlement: ResponseSettlement, hidesUsage: boolean) {
    this.#call = call;
    this.#format = format;
    this.#settlement = settlement;
    this.#hidesUsage = hidesUsage;
  }

  head(status: number, headers: HeaderList): void {
    this.#status = status;
    const contentType = headers.get("content-type");
    const encoding = headers.get("content-encoding");
    this.#isEventStream = isEventStream(contentType) && encoding === undefined;
    const beside = this.#format === "invoke" ? readHeaderUsage(headers) : undefined;
    if (status < 400)
      this.#tap = createUsageTap(contentType, encoding, (report) =>
        // The usage in the header covers the whole response, so no tokens remain uncounted.
        this.#settlement.used(
          report.usage === undefined && beside ? { ...report, usage: beside, uncountedTokens: 0 } : report,
        ),
      );
    if (this.#hidesUsage && this.#isEventStream) {
      this.#hider = createUsageHider();
      headers.delete("content-length");
    }
    this.#call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    this.#settlement.firstByte();
    if (!this.#hider) {
      const goOn = this.#call.data(chunk);
      // Counting after sending avoids delaying the client.
      this.#tap?.data(chunk);
      return goOn;
    }
    const usageAt = usageEventAt(chunk);
    const passed = this.#hider.pass(chunk, usageAt);
    const goOn = passed === undefined ? true : this.#call.data(passed);
    this.#tap?.data(chunk, usageAt);
    return goOn;
  }

  end(trailers: readonly string[]): void {
    const rest = this.#hider?.flush();
    if (rest) this.#call.data(rest);
    this.#settle(true);
    this.#call.end(trailers);
  }

  fail(error: unknown): void {
    this.#settle(false);
    if (this.#isEventStream) failAfter(this.#call, brokenStreamEvent(this.#format), error);
    else this.#call.fail(error);
  }

  abort(): void {
    this.#settle(false);
  }

  #settle(complete: boolean): void {
    if (this.#tap === undefined) this.#settlement.unused(String(this.#status));
    else if (complete) this.#tap.end();
    else this.#tap.abort();
  }
}

export function isEventStream(contentType: string | undefined): boolean {
  return contentType?.startsWith("text/event-stream") === true;
}

/** Fails in a later event-loop iteration, because closing the connection immediately could discard the last chunk. */
export function failAfter(call: ResponseReceiver, lastChunk: Buffer, error: unknown): void {
  call.data(lastChunk);
  setImmediate(() => call.fail(error));
}

/** The leading blank line terminates an event that was cut off. */
function brokenStreamEvent(format: Format): Buffer {
  const error = { status: 502, message: "the provider's stream ended early", code: "upstream_error" };
  return Buffer.from(`\n\n${encodeSseEvent(errorEvent(format, error))}`);
}

const COMPRESSED = peerInput("llm-provider/compressed-response");
const MAX_RESPONSE_BYTES = RESPONSE.maxBytes;
/** Limits the time to translate a response. Arrays of numbers, as in embeddings, do not count. */
const MAX_RESPONSE_OBJECTS = 200_000;
const COUNTED_BYTES = 64 * 1024;
const OPEN_BRACE = 123;
const DROPPED_HEADER = "x-gateway-dropped";
const AWS_STREAM = "application/vnd.amazon.eventstream";

/** Kept text is charged in steps of this size. */
const CHARGE_STEP_BYTES = 16 * 1024;
const CHAR_BYTES = 2;
const MEMORY_SHORT = "the memory for buffered responses is full";

interface UpstreamControl {
  stop(): void;
  isClientGone(): boolean;
  /** Charges buffered bytes until the request ends. Returns false if memory is short. */
  hold(bytes: number): boolean;
}

export class TranslatedResponse implements ProviderResponse {
  readonly #call: ResponseReceiver;
  readonly #plan: UpstreamPlan;
  readonly #translation: Translation;
  readonly #settlement: ResponseSettlement;
  #tap: UsageTap | undefined;
  #status = 0;
  #headers: HeaderList | undefined;
  #held: Buffer[] = [];
  #heldBytes = 0;
  #chargedBytes = 0;
  #stream: { push(chunk: Buffer): void; translation: StreamTranslation } | undefined;
  readonly #source: UpstreamControl;
  #out: string[] = [];
  #hasWritten = false;
  #over = false;

  constructor(
    call: ResponseReceiver,
    plan: UpstreamPlan,
    translation: Translation,
    settlement: ResponseSettlement,
    source: UpstreamControl,
  ) {
    this.#call = call;
    this.#plan = plan;
    this.#translation = translation;
    this.#settlement = settlement;
    this.#source = source;
  }

  head(status: number, headers: HeaderList): void {
    this.#status = status;
    this.#headers = headers;
    const dropped = this.#plan.context.losses.names;
    if (dropped.length > 0) headers.set(DROPPED_HEADER, dropped.join(", "));
    const contentType = headers.get("content-type");
    const encoding = headers.get("content-encoding");
    if (status < 400) this.#tap = createUsageTap(contentType, encoding, (report) => this.#settlement.used(report));
    const isAws = contentType?.startsWith(AWS_STREAM) === true;
    if (status >= 400 || isEncoded(encoding) || !(isAws || isEventStream(contentType))) return;
    this.#stream = this.#openStream(isAws);
    headers.delete("content-length");
    headers.set(
      "content-type",
      this.#plan.framing === "array" ? "application/json; charset=UTF-8" : "text/event-stream; charset=utf-8",
    );
    if (!headers.has("cache-control")) headers.add("cache-control", "no-cache");
    this.#call.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    this.#settlement.firstByte();
    this.#tap?.data(chunk);
    if (this.#stream) return this.#streamData(chunk);
    if (this.#over) return true;
    this.#heldBytes += chunk.length;
    this.#held.push(chunk);
    if (this.#heldBytes > MAX_RESPONSE_BYTES)
      this.#giveUp("backend_response_invalid", `the provider's response is larger than ${MAX_RESPONSE_BYTES} bytes`);
    else if (!this.#charge(this.#heldBytes)) this.#giveUp("overloaded", MEMORY_SHORT);
    return true;
  }

  end(trailers: readonly string[]): void {
    if (this.#over) return;
    if (!this.#stream) {
      // `#sendWhole` settles translations that read the usage from the complete response.
      if (this.#translation.counts === undefined || this.#status >= 400) this.#settle(true);
      const raw = Buffer.concat(this.#held);
      const encoding = this.#headers?.get("content-encoding");
      if (isEncoded(encoding)) decompressLater(COMPRESSED, raw, encoding, (bytes) => this.#decompressed(bytes));
      else this.#send(raw);
      return;
    }
    try {
      this.#collect(this.#stream.translation.end());
      if (this.#plan.framing === "array") this.#out.push(this.#hasWritten ? "]" : "[]");
    } catch (error) {
      this.#breakStream(error);
      return;
    }
    this.#settle(true);
    this.#sendCollected();
    this.#call.end(trailers);
  }

  fail(error: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#settle(false);
    if (this.#stream) failAfter(this.#call, brokenStreamEvent(this.#plan.clientFormat), error);
    else this.#call.fail(error);
  }

  abort(): void {
    this.#over = true;
    this.#settle(false);
  }

  #openStream(isAws: boolean): { push(chunk: Buffer): void; translation: StreamTranslation } {
    const translation = this.#translation.stream(this.#plan.context);
    const take = (type: string, text: string): void => {
      const data = parseEvent(text);
      if (data !== undefined) this.#collect(translation.event(type, data));
      // An unreadable event may contain text, so it must not be dropped silently.
      else if (text !== "" && text.trim() !== "[DONE]") throw new Error("an event of the stream is not a JSON object");
    };
    const reader = isAws
      ? createEventStreamReader(AWS_EVENTS, ({ messageType, type, payload }) =>
          take(messageType === "event" ? type : "exception", payload.toString("utf8")),
        )
      : createSseParser(STREAM, ({ event, data }) => take(event, data));
    return { push: (chunk) => reader.push(chunk), translation };
  }

  #streamData(chunk: Buffer): boolean {
    if (this.#over) return true;
    try {
      this.#stream?.push(chunk);
      const heldChars = this.#stream?.translation.heldChars() ?? 0;
      if (!this.#charge(heldChars * CHAR_BYTES)) throw new GatewayError("overloaded", { detail: MEMORY_SHORT });
    } catch (error) {
      this.#breakStream(error);
      return true;
    }
    return this.#sendCollected();
  }

  /** Sends the events translated so far and an error event in the client's dialect, then fails the response. */
  #breakStream(error: unknown): void {
    this.#over = true;
    this.#source.stop();
    this.#sendCollected();
    this.#settle(false);
    const known = error instanceof UpstreamResponseError;
    const event = errorEvent(this.#plan.clientFormat, {
      status: known ? error.status : 502,
      message: known ? error.message : "the provider's stream could not be read",
      code: "upstream_error",
    });
    failAfter(
      this.#call,
      Buffer.from(encodeSseEvent(event)),
      error instanceof GatewayError
        ? error
        : new GatewayError("backend_response_invalid", { cause: error, detail: String(error) }),
    );
  }

  /** Returns false if the bytes that the response holds now do not fit into the memory budget. */
  #charge(heldBytes: number): boolean {
    if (heldBytes <= this.#chargedBytes) return true;
    const bytes = Math.max(heldBytes - this.#chargedBytes, CHARGE_STEP_BYTES);
    this.#chargedBytes += bytes;
    return this.#source.hold(bytes);
  }

  #collect(events: readonly OutEvent[]): void {
    for (const { event, data } of events) {
      if (this.#plan.framing === "array") {
        this.#out.push(this.#hasWritten ? ",\r\n" : "[", JSON.stringify(data));
        this.#hasWritten = true;
        continue;
      }
      this.#out.push(
        encodeSseEvent({
          ...(event === undefined ? {} : { event }),
          data: data === "[DONE]" ? data : JSON.stringify(data),
        }),
      );
    }
  }

  #sendCollected(): boolean {
    if (this.#out.length === 0) return true;
    const text = this.#out.join("");
    this.#out = [];
    return this.#call.data(Buffer.from(text));
  }

  #giveUp(code: "backend_response_invalid" | "overloaded", detail: string): void {
    this.#over = true;
    this.#held = [];
    this.#source.stop();
    this.#settle(false);
    this.#call.fail(new GatewayError(code, { detail }));
  }

  #decompressed(bytes: Buffer | undefined): void {
    if (this.#over || this.#source.isClientGone()) return;
    if (this.#charge(this.#heldBytes + (bytes?.length ?? 0))) this.#send(bytes);
    else this.#giveUp("overloaded", MEMORY_SHORT);
  }

  #send(bytes: Buffer | undefined): void {
    if ((bytes?.length ?? 0) <= SLICED_BYTES) finish(this.#sendWhole(bytes));
    else
      runInSlices(this.#sendWhole(bytes), () => this.#source.isClientGone()).catch((error) => this.#call.fail(error));
  }

  *#sendWhole(bytes: Buffer | undefined): Steps<void> {
    const text = bytes?.toString("utf8") ?? "";
    yield;
    const isTooComplex = bytes !== undefined && (yield* hasManyObjects(bytes));
    const parsed = isTooComplex ? undefined : bytes && (yield* readMembersInSteps(RESPONSE, bytes));
    if (this.#status < 400 && parsed === undefined) {
      this.#settle(true);
      this.#call.fail(
        new GatewayError("backend_response_invalid", {
          detail: isTooComplex
            ? `the provider's response has more than ${MAX_RESPONSE_OBJECTS} objects`
            : "the provider's response is not a JSON object",
        }),
      );
      return;
    }
    const { clientFormat, context } = this.#plan;
    // Some servers return an error with status 200.
    if (this.#status < 400 && isMembers(parsed?.error)) this.#status = 502;
    let body: Members;
    try {
      body =
        parsed !== undefined && this.#status < 400
          ? this.#translation.response(parsed, context)
          : errorBody(clientFormat, clientError(clientFormat, this.#status, parsed, text));
    } catch (error) {
      this.#status = error instanceof UpstreamResponseError ? error.status : 502;
      const message = error instanceof UpstreamResponseError ? error.message : "the provider's response cannot be read";
      body = errorBody(clientFormat, { status: this.#status, message, code: "upstream_error" });
    }
    const { counts } = this.#translation;
    if (counts && this.#tap !== undefined) body = this.#count(counts, parsed, body);
    yield;
    const out = Buffer.from(yield* stringifyInSteps(body));
    const headers = this.#headers;
    if (!headers) return;
    for (const name of ["content-encoding", "etag", "x-amzn-errortype"]) headers.delete(name);
    headers.set("content-type", "application/json");
    headers.set("content-length", String(out.length));
    this.#call.head(this.#status, headers);
    this.#call.data(out);
    this.#call.end();
  }

  #count(counts: NonNullable<Translation["counts"]>, answer: Members | undefined, body: Members): Members {
    const headers = this.#headers;
    const tokens = (answer && counts.inputTokens(answer)) ?? (headers && readHeaderUsage(headers)?.inputTokens);
    const usage = tokens === undefined ? undefined : { inputTokens: tokens, outputTokens: 0, totalTokens: tokens };
    this.#settlement.used({ usage, responseModel: undefined, uncountedTokens: 0, complete: usage !== undefined });
    return tokens === undefined || this.#status >= 400 ? body : counts.withInputTokens(body, tokens);
  }

  #settle(complete: boolean): void {
    if (this.#tap === undefined) this.#settlement.unused(String(this.#status));
    else if (complete) this.#tap.end();
    else this.#tap.abort();
  }
}

/** Braces inside strings count too. */
export function* hasManyObjects(bytes: Buffer): Steps<boolean> {
  let objects = 0;
  for (let at = 0; at < bytes.length && objects <= MAX_RESPONSE_OBJECTS; at += COUNTED_BYTES) {
    const end = Math.min(bytes.length, at + COUNTED_BYTES);
    for (let i = at; i < end; i++) if (bytes[i] === OPEN_BRACE) objects += 1;
    yield;
  }
  return objects > MAX_RESPONSE_OBJECTS;
}
