/**
 * Implements the response half of the pipeline: response hooks from inner to outer scopes, the head, the body with
 * backpressure, and the settle phase. A failure gets an error response if no response has started, and otherwise closes
 * the connection. The first error response passes the response hooks, a second one skips them, and a third failure closes
 * the connection.
 */
import { peerInput } from "../../base/peer-inputs.ts";
import type { BackendRun } from "../../core/backend.ts";
import { type ErrorCode, GatewayError } from "../../core/errors.ts";
import type { BodyFilter, Exchange, GatewayResponse } from "../../core/exchange.ts";
import { type CompiledPolicy, type CompiledScope, type Outcome, rejectPromise } from "../../core/policy.ts";
import { asGatewayError, errorReply, type Reply } from "../../core/reply.ts";
import type { ClientSink } from "../../core/sink.ts";
import { responseState, withCurrentDurations } from "../../core/snapshot.ts";
import type { Route } from "../../core/topology.ts";
import type { HeaderList } from "../../http/headers.ts";
import { BodyCapture } from "../../record/recorded-bodies.ts";
import { FilteredResponse } from "./filtered-response.ts";
import type { PipelineEnv } from "./pipeline-env.ts";
import { runResponseHooks } from "./run-hooks.ts";

/** Limits the response body that an expression can read. */
const MAX_HELD_BYTES = peerInput("backend/response-body").maxBytes;

type DeliveryEnv = Pick<PipelineEnv, "clock" | "redaction" | "settled" | "defect" | "dry">;

export class Delivery {
  /** Lists the entered scopes, outermost first. */
  readonly entered: CompiledScope[] = [];
  run: BackendRun | undefined = undefined;
  readonly #env: DeliveryEnv;
  readonly #exchange: Exchange;
  readonly #sink: ClientSink;
  readonly #onError: (error: unknown) => void;
  /** Holds chunks that arrived while hooks were running, or that a hook needs because it reads the body. */
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** Set while the whole body must be held for a hook. A larger body is rejected. */
  #requiredBytes: number | undefined = undefined;
  #filtered: FilteredResponse | undefined = undefined;
  #state: "waiting" | "holding" | "hooks" | "streaming" | "done" = "waiting";
  #bodyEnded = false;
  #trailers: readonly string[] | undefined = undefined;
  #replyBody: Buffer | undefined = undefined;
  #confidential = false;
  #paused = false;
  #bytes = 0;
  /** Counts the remaining body bytes, or is negative if the length is unknown. */
  #remaining = -1;
  #capture: BodyCapture | undefined = undefined;
  #settled = false;

  constructor(env: DeliveryEnv, exchange: Exchange, sink: ClientSink, onError: (error: unknown) => void) {
    this.#env = env;
    this.#exchange = exchange;
    this.#sink = sink;
    this.#onError = onError;
  }

  /** True if an error can still become a response. */
  get canReplace(): boolean {
    return this.#state !== "streaming" && this.#state !== "done";
  }

  get isDone(): boolean {
    return this.#state === "done";
  }

  /** Sends a response of the gateway itself, without response hooks if `withHooks` is false. */
  reply(reply: Reply, withHooks = true): void {
    this.#exchange.records.spans?.leave(this.#env.clock.monotonicMs());
    this.#held = [];
    this.#heldBytes = 0;
    this.#bodyEnded = true;
    this.#replyBody = reply.body;
    this.#confidential = reply.confidential === true;
    // A 204 has no length, and a 304 has the length of the body that is not sent (RFC 9110 section 8.6).
    const hasLength = reply.status !== 204 && reply.status !== 304;
    if (hasLength) reply.headers.set("content-length", String(reply.body?.length ?? 0));
    const response: GatewayResponse = { status: reply.status, headers: reply.headers, source: "gateway" };
    if (withHooks) {
      this.#respond(response, reply.body);
      return;
    }
    this.#state = "hooks";
    this.#exchange.response = response;
    this.#sendHead(response);
  }

  /** Starts the backend's response. `said` is the error code if the response is the gateway's own error. */
  head(status: number, headers: HeaderList, said?: ErrorCode): void {
    headers.removeHopByHop();
    // Only the gateway may set these headers, the second one for a rate limit service.
    headers.delete("x-gateway-error");
    headers.delete("x-vendor-ratelimited");
    if (said !== undefined) headers.set("x-gateway-error", said);
    this.#exchange.dropBodyCopies();
    const response: GatewayResponse = { status, headers, source: "upstream" };
    this.#exchange.response = response;
    this.#exchange.observeResponse?.(response);
    this.#exchange.records.watchResponse?.(response);
    const observer = this.#exchange.records.audit?.answered(
      status,
      headers.get("content-type"),
      headers.get("content-encoding"),
    );
    if (observer !== undefined) response.observers = [...(response.observers ?? []), observer];
    this.#requiredBytes = this.#requiredBody();
    if (this.#requiredBytes !== undefined || this.#mustHold(headers)) this.#state = "holding";
    else this.#respond(response, undefined);
  }

  data(chunk: Buffer): boolean {
    if (this.#state === "streaming") return this.#filtered?.data(chunk) ?? this.#write(chunk);
    if (this.#state === "done") return true;
    this.#held.push(chunk);
    this.#heldBytes += chunk.length;
    if (this.#state === "hooks") {
      this.#paused = true;
      return false;
    }
    const maxBytes = this.#requiredBytes ?? MAX_HELD_BYTES;
    const mayHold = this.#heldBytes <= maxBytes && this.#exchange.holdResponse(chunk.length);
    if (!mayHold && this.#requiredBytes !== undefined) {
      this.#onError(
        new GatewayError("backend_response_invalid", { detail: `the response body is larger than ${maxBytes} bytes` }),
      );
      return true;
    }
    // A body that is too large to hold is forwarded, and the expression gets no body.
    if (!mayHold && this.#exchange.response) this.#respond(this.#exchange.response, undefined);
    return true;
  }

  end(trailers: readonly string[] | undefined): void {
    this.run = undefined;
    if (this.#state === "done") return;
    this.#bodyEnded = true;
    this.#trailers = trailers;
    if (this.#state === "streaming") this.#endBody();
    else if (this.#state === "holding" && this.#exchange.response)
      this.#respond(this.#exchange.response, Buffer.concat(this.#held));
  }

  /** Destroys the sink, because no error response can be sent. */
  breakOff(): void {
    this.run = undefined;
    if (this.#state === "done") return;
    this.#state = "done";
    this.#filtered?.stop();
    this.#sink.destroy();
    this.settle("failed");
  }

  /** `complete` is true if the whole response was written. */
  clientClosed(complete: boolean): void {
    const run = this.run;
    this.run = undefined;
    this.#state = "done";
    this.#filtered?.stop();
    run?.abort();
    this.settle(complete ? "complete" : "aborted");
  }

  settle(end: Outcome["end"]): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#exchange.isOver = true;
    this.#exchange.releaseMemory();
    const outcome: Outcome = { status: this.#exchange.response?.status, end, responseBytes: this.#bytes };
    settle(this.#env, this.#exchange, this.entered, outcome, this.#capture);
  }

  /** Returns the largest body that a response hook needs, or undefined if no hook needs the body. */
  #requiredBody(): number | undefined {
    let required: number | undefined;
    for (const scope of this.entered)
      for (const { hooks } of scope.response) {
        const bytes = hooks.response?.bodyBytes?.(this.#exchange);
        if (bytes !== undefined) required = Math.max(required ?? 0, bytes);
      }
    return required;
  }

  #mustHold(headers: HeaderList): boolean {
    if (!this.entered.some((scope) => scope.readsResponseBody)) return false;
    // Encoded bytes are not text, so the expression gets no body.
    const isEncoded = headers.has("content-encoding") && headers.get("content-encoding") !== "identity";
    return !isEncoded && headers.get("content-type")?.startsWith("text/event-stream") !== true;
  }

  #respond(response: GatewayResponse, body: Buffer | undefined): void {
    this.#state = "hooks";
    if (body) response.body = body;
    this.#exchange.response = response;
    if (this.#exchange.trace === undefined && this.entered.every(hasNoResponseHooks)) {
      this.#sendHead(response);
      return;
    }
    const run = {
      exchange: this.#exchange,
      clock: this.#env.clock,
      redaction: this.#env.redaction,
      isDry: this.#env.dry !== undefined,
      fail: this.#onError,
    };
    // The gateway and the route are outside of the backend.
    const outer = outward(this.entered, 0, 2);
    runResponseHooks(run, outward(this.entered, 2, this.entered.length), () => {
      if (response.source === "upstream") this.#snapshot("backend response ready");
      runResponseHooks(run, outer, () => this.#sendHead(response));
    });
  }

  #sendHead(response: GatewayResponse): void {
    // Asynchronous hooks may return after the response was replaced.
    if (this.#state !== "hooks" || response !== this.#exchange.response) return;
    const { headers } = response;
    if (response.replacement !== undefined) {
      headers.set("content-length", String(response.replacement.length));
      headers.delete("content-encoding");
      headers.delete("etag");
    }
    const filters = this.#filtersOf(response);
    if (filters.length > 0) {
      headers.delete("content-length");
      headers.delete("etag");
      this.#filtered = new FilteredResponse(filters, {
        write: (chunk) => this.#write(chunk),
        end: (last) => this.#end(last),
        resume: () => this.run?.resume(),
        fail: this.#onError,
      });
    }
    headers.set("x-request-id", this.#exchange.id);
    this.#snapshot("final response");
    if (this.#exchange.trace !== undefined && !this.#confidential) this.#capture = new BodyCapture();
    this.#remaining = contentLength(headers);
    this.#sink.head(response.status, headers);
    this.#state = "streaming";
    if (response.replacement !== undefined) this.#sendReplacement(response.replacement);
    else if (this.#replyBody !== undefined) this.#end(this.#replyBody);
    else this.#flushHeld();
  }

  /** A policy set its own body, so the backend call is aborted. */
  #sendReplacement(body: Buffer): void {
    this.#held = [];
    const { run } = this;
    this.run = undefined;
    run?.abort();
    this.#end(body);
  }

  #flushHeld(): void {
    const held = this.#held;
    this.#held = [];
    for (const chunk of held) {
      if (this.#filtered === undefined) this.#write(chunk);
      else this.#filtered.data(chunk);
    }
    if (this.#state !== "streaming") return;
    if (this.#bodyEnded) this.#endBody();
    else if (this.#filtered !== undefined && held.length > 0) this.#paused = false;
    else if (this.#paused) {
      this.#paused = false;
      this.run?.resume();
    }
  }

  #write(chunk: Buffer): boolean {
    this.#bytes += chunk.length;
    this.#capture?.add(chunk);
    this.#observe(chunk);
    if (this.#remaining === chunk.length) {
      // The last chunk of a known length is written together with the end.
      this.#state = "done";
      this.#endSink(chunk, undefined);
      return true;
    }
    this.#remaining -= chunk.length;
    return this.#sink.write(chunk) || this.#awaitDrain();
  }

  #observe(chunk: Buffer): void {
    const observers = this.#exchange.response?.observers;
    if (observers) for (const observer of observers) guarded(this.#env, this.#exchange, () => observer.data(chunk));
  }

  #endBody(): void {
    if (this.#filtered === undefined) this.#end(undefined);
    else this.#filtered.end();
  }

  /** A response of the gateway itself, or one that a policy replaced, has no filters. */
  #filtersOf({ source, replacement, filters = [] }: GatewayResponse): readonly BodyFilter[] {
    return source === "upstream" && replacement === undefined ? filters : [];
  }

  #awaitDrain(): false {
    this.#sink.onDrain ??= () => {
      this.#sink.onDrain = undefined;
      this.#filtered?.drained();
      this.run?.resume();
    };
    return false;
  }

  #end(lastChunk: Buffer | undefined): void {
    this.#state = "done";
    if (lastChunk) {
      this.#bytes += lastChunk.length;
      this.#capture?.add(lastChunk);
      if (this.#filtered !== undefined) this.#observe(lastChunk);
    }
    this.#endSink(lastChunk, this.#trailers);
  }

  /** Destroys the sink if its end throws, so that the client does not wait. */
  #endSink(lastChunk: Buffer | undefined, trailers: readonly string[] | undefined): void {
    try {
      this.#sink.end(lastChunk, trailers);
    } catch (error) {
      this.#sink.destroy();
      throw error;
    }
  }

  #snapshot(stage: "backend response ready" | "final response"): void {
    const { trace, upstream } = this.#exchange;
    if (trace === undefined) return;
    const state = responseState(this.#exchange, this.#env.redaction, this.#env.clock);
    upstream.emitSnapshot(() =>
      trace.point({
        type: "responseSnapshot",
        stage,
        requestState: withCurrentDurations(state, this.#exchange, this.#env.clock),
      }),
    );
  }
}

/** Returns the policies with response hooks of these scopes, the innermost scope first. */
function outward(scopes: readonly CompiledScope[], from: number, to: number): readonly CompiledPolicy[] {
  let found = NONE;
  for (let i = Math.min(to, scopes.length) - 1; i >= from; i--) {
    const { response } = scopes[i] as CompiledScope;
    if (response.length > 0) found = found === NONE ? response : [...found, ...response];
  }
  return found;
}

function hasNoResponseHooks(scope: CompiledScope): boolean {
  return scope.response.length === 0;
}

function contentLength(headers: HeaderList): number {
  const length = headers.get("content-length");
  return length === undefined ? -1 : Number(length);
}

const NONE: readonly CompiledPolicy[] = [];

type SettleEnv = Pick<PipelineEnv, "settled" | "defect" | "dry">;

/** If an observer or a hook throws, the exception is reported and the remaining steps still run. */
export function settle(
  env: SettleEnv,
  exchange: Exchange,
  entered: readonly CompiledScope[],
  outcome: Outcome,
  capture: BodyCapture | undefined,
): void {
  const { response, trace } = exchange;
  exchange.upstream.releaseSnapshots();
  if (response?.observers)
    for (const observer of response.observers) guarded(env, exchange, () => observer.end(outcome.end === "complete"));
  if (env.dry?.settles(exchange) !== false)
    for (let i = entered.length - 1; i >= 0; i--)
      for (const { hooks } of (entered[i] as CompiledScope).settle)
        guarded(env, exchange, () => rejectPromise("settle", hooks.settle?.(exchange, outcome)));
  for (const ended of exchange.onEnd ?? []) guarded(env, exchange, ended);
  capture?.emit(trace, "response", response?.headers.get("content-type"));
  guarded(env, exchange, () => env.settled(exchange, outcome));
}

export function guarded(env: Pick<SettleEnv, "defect">, exchange: Exchange, action: () => void): void {
  try {
    action();
  } catch (error) {
    env.defect(exchange, error);
  }
}

const MAX_FAILURES = 2;

type FailureEnv = Pick<PipelineEnv, "redaction" | "defect">;

export type FailureDelivery = Pick<Delivery, "run" | "isDone" | "canReplace" | "reply" | "breakOff">;

/** Returns the error in the format of the route's first backend that has one, or undefined. */
export function backendErrorReply(
  route: Route | undefined,
  exchange: Exchange,
  error: GatewayError,
): Reply | undefined {
  for (const { backend } of route?.backends ?? []) if (backend.errorReply) return backend.errorReply(exchange, error);
  return undefined;
}

export class Failures {
  readonly #env: FailureEnv;
  readonly #exchange: Exchange;
  readonly #delivery: FailureDelivery;
  readonly #shape: (error: GatewayError) => Reply | undefined;
  #count = 0;

  constructor(
    env: FailureEnv,
    exchange: Exchange,
    delivery: FailureDelivery,
    shape: (error: GatewayError) => Reply | undefined,
  ) {
    this.#env = env;
    this.#exchange = exchange;
    this.#delivery = delivery;
    this.#shape = shape;
  }

  answer(thrown: unknown): void {
    const error = asGatewayError(thrown);
    if (error.code === "internal") this.#env.defect(this.#exchange, error.cause ?? error);
    if (this.#delivery.isDone) return;
    this.#note(error);
    const { run } = this.#delivery;
    this.#delivery.run = undefined;
    run?.abort();
    if (!this.#delivery.canReplace || this.#count >= MAX_FAILURES) {
      this.#delivery.breakOff();
      return;
    }
    this.#count += 1;
    try {
      this.#delivery.reply(this.#shape(error) ?? errorReply(error), this.#count === 1);
    } catch (again) {
      this.answer(again);
    }
  }

  /** A reason may quote the client's request, so credentials are redacted in the log and the trace. */
  #note({ code, source, message, detail }: GatewayError): void {
    const {
      request,
      credentials: { secrets },
    } = this.#exchange;
    const shown = detail && this.#env.redaction.scrub(detail, request.headers.pairs, secrets);
    this.#exchange.failure = { code, source, message, detail: shown };
  }
}
