/**
 * One attempt at one backend: the request as it left the route phase, the backend's own policies, the call with
 * its time limit. A failed attempt says whether another may follow: never after bytes reached the client, and
 * never with a body that was already sent.
 */
import type { Duplex } from "node:stream";
import type { BackendCall, BackendRun } from "../core/backend.ts";
import { GatewayError } from "../core/errors.ts";
import type { Exchange } from "../core/exchange.ts";
import type { RetrySettings } from "../core/policy.ts";
import { requestState } from "../core/snapshot.ts";
import type { WeightedBackend } from "../core/topology.ts";
import type { Clock, Timer } from "../lib/clock.ts";
import { contain } from "../lib/contain.ts";
import type { HeaderList } from "../lib/headers.ts";
import { HttpClientError } from "../lib/http-client.ts";
import type { Redaction } from "../trace/redact.ts";
import { captureRequestBody } from "./body-capture.ts";
import type { Delivery } from "./delivery.ts";

/** Safe to send twice (RFC 9110 section 9.2.2). */
const IDEMPOTENT = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

/** A reason may quote what a server wrote. */
const MAX_PROBLEM_CHARS = 500;

/** What runs the attempt: it is told how the attempt ended when no response head came of it. */
export interface AttemptOwner {
  readonly clock: Clock;
  readonly redaction: Redaction;
  upgraded(status: number, headers: HeaderList, socket: Duplex): void;
  attemptFailed(error: GatewayError, mayRetry: boolean): void;
  /** The client's body is still arriving. */
  isUploading(): boolean;
}

export class Attempt implements BackendCall, BackendRun {
  readonly #owner: AttemptOwner;
  readonly #exchange: Exchange;
  readonly #delivery: Delivery;
  readonly #retry: RetrySettings | undefined;
  readonly #isLast: boolean;
  readonly #startedMs: number;
  /** The first target that the backend named. */
  #target: string | undefined;
  #timer: Timer | undefined;
  #run: BackendRun | undefined;
  #state: "waiting" | "answering" | "over" = "waiting";

  constructor(
    owner: AttemptOwner,
    exchange: Exchange,
    delivery: Delivery,
    retry: RetrySettings | undefined,
    isLast: boolean,
  ) {
    this.#owner = owner;
    this.#exchange = exchange;
    this.#delivery = delivery;
    this.#retry = retry;
    this.#isLast = isLast;
    this.#startedMs = owner.clock.monotonicMs();
  }

  /** `isDefault`: nobody chose the limit, so it does not count while the client's body is still arriving. */
  start(chosen: WeightedBackend, timeoutMs: number, isDefault: boolean): void {
    this.#exchange.upstreamStartedMs = this.#startedMs;
    if (timeoutMs > 0) this.#arm(timeoutMs, isDefault && this.#exchange.request.body.kind === "stream");
    const run = chosen.backend.call(this.#exchange, this);
    // A backend may have answered while it was called; then there is nothing left to hold on to.
    if (this.#state === "over") return;
    this.#run = run;
    if (this.#state === "answering") this.#delivery.run = run;
    else this.#delivery.run = this;
  }

  /** Until the head, the pipeline's way to give up goes through here: what follows must not report back. */
  abort(): void {
    this.#over();
    this.#run?.abort();
  }

  resume(): void {
    this.#run?.resume();
  }

  attempt(target: string): void {
    const { trace } = this.#exchange;
    if (trace === undefined) return;
    const isFirst = this.#target === undefined;
    this.#target = target;
    // Now the backend has made of the request what it sends; a second target of the same attempt gets the same.
    if (isFirst) {
      trace.point({
        type: "requestSnapshot",
        stage: "final request",
        requestState: requestState(this.#exchange, this.#owner.redaction),
      });
    }
    trace.point({ type: "backendCallStart", target });
    if (isFirst) captureRequestBody(this.#exchange);
  }

  head(status: number, headers: HeaderList): void {
    if (this.#state !== "waiting") return;
    if (!this.#isLast && this.#retry?.codes.has(status) === true && this.#mayRepeat(true)) {
      this.abort();
      this.#result(status, null);
      this.#owner.attemptFailed(new GatewayError("backend_unavailable", { detail: `status ${status}` }), true);
      return;
    }
    this.#timer?.cancel();
    this.#state = "answering";
    this.#exchange.upstreamHeadMs = this.#owner.clock.monotonicMs();
    if (this.#run) this.#delivery.run = this.#run;
    this.#result(status, null);
    this.#delivery.head(status, headers);
  }

  data(chunk: Buffer): boolean {
    return this.#state === "answering" ? this.#delivery.data(chunk) : true;
  }

  end(trailers?: readonly string[]): void {
    if (this.#state !== "answering") return;
    this.#state = "over";
    this.#delivery.end(trailers);
  }

  problem(reason: string): void {
    this.#exchange.failure ??= {
      code: "backend_unavailable",
      source: "upstream",
      message: reason.slice(0, MAX_PROBLEM_CHARS),
      detail: undefined,
    };
  }

  fail(error: unknown): void {
    if (this.#state === "over") return;
    const wasAnswering = this.#state === "answering";
    this.#state = "over";
    this.#timer?.cancel();
    const failure = backendError(error);
    // The head may still be held back for an expression that reads the body: then the client can be told.
    if (wasAnswering && this.#delivery.canReplace) {
      this.#owner.attemptFailed(failure, false);
      return;
    }
    if (wasAnswering) {
      this.#exchange.failure ??= {
        code: failure.code,
        source: failure.source,
        message: failure.message,
        detail: failure.detail,
      };
      this.#delivery.breakOff();
      return;
    }
    this.#result(null, failure.detail ?? failure.message);
    this.#owner.attemptFailed(
      failure,
      this.#mayRepeat(error instanceof HttpClientError && error.kind === "connect", error),
    );
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    if (this.#state !== "waiting") {
      socket.destroy();
      return;
    }
    this.#timer?.cancel();
    this.#state = "over";
    this.#result(status, null);
    this.#owner.upgraded(status, headers, socket);
  }

  /**
   * By default only what certainly did nothing is repeated: a connection that was never made, or a kept one that
   * turned out to be closed under an idempotent request (RFC 9110 section 9.2.2). A retry policy widens that.
   */
  #mayRepeat(nothingSent: boolean, error?: unknown): boolean {
    const { request } = this.#exchange;
    if (request.body.kind === "stream" && request.body.taken) return false;
    if (IDEMPOTENT.has(request.method)) return true;
    const connectFailed =
      error instanceof HttpClientError && (error.kind === "connect" || error.kind === "connect-timeout");
    // The operator named the status: the backend refused the request, it did not lose it.
    return connectFailed || (nothingSent && error === undefined);
  }

  #arm(timeoutMs: number, wasUploading: boolean): void {
    const onTimer = (): void => {
      // After an upload the backend gets the whole time, counted from the first look that finds it done.
      if (wasUploading) this.#arm(timeoutMs, this.#owner.isUploading());
      else this.#timedOut(timeoutMs);
    };
    this.#timer = this.#owner.clock.after(timeoutMs, () =>
      contain(onTimer, () => this.#owner.attemptFailed(new GatewayError("internal"), false)),
    );
  }

  #timedOut(timeoutMs: number): void {
    if (this.#state !== "waiting") return;
    this.abort();
    const error = new GatewayError("backend_timeout", {
      detail: `no response head within ${Math.round(timeoutMs)} ms`,
    });
    this.#result(null, error.detail ?? error.message);
    this.#owner.attemptFailed(error, IDEMPOTENT.has(this.#exchange.request.method) && this.#mayRepeat(false));
  }

  #over(): void {
    this.#state = "over";
    this.#timer?.cancel();
  }

  #result(status: number | null, error: string | null): void {
    const severity = error !== null || (status ?? 0) >= 500 ? "error" : (status ?? 0) >= 400 ? "warn" : "info";
    this.#exchange.trace?.span(this.#startedMs, { type: "backendCallResult", status, error }, severity);
  }
}

function backendError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  if (!(error instanceof HttpClientError)) return new GatewayError("internal", { cause: error });
  const options = { detail: error.message, cause: error };
  switch (error.kind) {
    case "connect":
      return new GatewayError("backend_unavailable", options);
    case "connect-timeout":
      return new GatewayError("backend_timeout", options);
    case "request":
      return new GatewayError("bad_request", { ...options, message: "bad request: it cannot be forwarded as it is" });
    default:
      return new GatewayError("backend_response_invalid", options);
  }
}
