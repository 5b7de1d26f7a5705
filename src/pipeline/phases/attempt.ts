/**
 * Makes one call to a backend with its timeout, and reports whether a failed call may be retried.
 */
import type { Duplex } from "node:stream";
import type { Clock, Timer } from "../../base/clock.ts";
import type { ServedModel } from "../../core/attempts.ts";
import type { Backend, BackendProblem, BackendRun, ResponseReceiver } from "../../core/backend.ts";
import { type ErrorCode, GatewayError } from "../../core/errors.ts";
import type { Exchange, GatewayRequest } from "../../core/exchange.ts";
import type { Settings } from "../../core/policy.ts";
import { asGatewayError } from "../../core/reply.ts";
import type { WeightedBackend } from "../../core/topology.ts";
import type { Sent } from "../../core/wire.ts";
import type { HeaderList } from "../../http/headers.ts";
import { type AttemptEvent, type AttemptState, afterEvent, isOver } from "../../http/http-attempt.ts";
import { HttpClientError } from "../../http/http-client.ts";
import type { Redaction } from "../../observe/trace/redact.ts";
import { reportAttempt, reportFailure, reportHead, reportMiss, reportResponse } from "./attempt-reports.ts";
import type { Delivery } from "./delivery.ts";

export function backendError(error: unknown): GatewayError {
  if (!(error instanceof HttpClientError)) return asGatewayError(error);
  const options = { detail: error.message, cause: error };
  switch (error.kind) {
    case "connect":
      return new GatewayError("backend_unavailable", options);
    case "connect-timeout":
      return new GatewayError("backend_timeout", options);
    case "internal":
      return new GatewayError("internal", { cause: error.cause });
    case "request":
      return new GatewayError("bad_request", { ...options, message: "bad request: it cannot be forwarded" });
    default:
      return new GatewayError("backend_response_invalid", options);
  }
}

/** A timeout of `0s` means no limit, as in the Gateway API. */
export const UNLIMITED = 0;

/** Returns the deadline of the whole request on the monotonic clock, or undefined if it has none. */
export function requestDeadline({ requestTimeoutMs }: Settings, startedMs: number): number | undefined {
  return requestTimeoutMs === undefined || requestTimeoutMs === UNLIMITED ? undefined : startedMs + requestTimeoutMs;
}

/**
 * Returns the timeout for the response head of the current target, with `spares` more targets to try after it.
 * `backendRequestTimeout` applies to each target and `requestTimeout` to the whole request. Without either, the
 * backend's default applies to each target.
 */
export function headLimitMs(
  settings: Settings,
  defaultMs: number,
  deadlineMs: number | undefined,
  nowMs: number,
  spares: number,
): number {
  const { backendTimeoutMs, requestTimeoutMs } = settings;
  const perTargetMs = backendTimeoutMs ?? (requestTimeoutMs === undefined ? defaultMs : undefined);
  if (deadlineMs === undefined) return perTargetMs ?? UNLIMITED;
  const leftMs = Math.max(1, deadlineMs - nowMs);
  // If only the whole request has a timeout, the remaining targets share the remaining time.
  if (perTargetMs === undefined) return leftMs / (1 + spares);
  return perTargetMs === UNLIMITED ? leftMs : Math.min(perTargetMs, leftMs);
}

/** Describes an expired `headLimitMs` with the setting that an operator can change. */
export function timeoutDetail(settings: Settings, defaultMs: number, limitMs: number, spares: number): string {
  const { backendTimeoutMs, requestTimeoutMs } = settings;
  const after = "no response headers within";
  if (backendTimeoutMs !== undefined && backendTimeoutMs === limitMs)
    return `${after} ${durationText(backendTimeoutMs)} (timeout.backendRequestTimeout)`;
  if (requestTimeoutMs === undefined)
    return `${after} ${durationText(defaultMs)} (the default of timeout.requestTimeout)`;
  const isShare = backendTimeoutMs === undefined && spares > 0;
  const share = isShare ? `${durationText(limitMs)}, a share of ` : "";
  return `${after} ${share}${durationText(requestTimeoutMs)} (timeout.requestTimeout)`;
}

function durationText(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 100) / 10} s`;
}

/** Lists the idempotent methods of RFC 9110 section 9.2.2, without TRACE, which the gateway rejects. */
const IDEMPOTENT = new Set(["GET", "HEAD", "OPTIONS", "PUT", "DELETE"]);

export function isIdempotent({ method }: GatewayRequest): boolean {
  return IDEMPOTENT.has(method);
}

/**
 * Returns whether a request may be sent again, which is impossible after a streamed body was taken. A request that is
 * not idempotent may be repeated if connecting failed or the retry policy lists the response status.
 */
export function mayRepeat(request: GatewayRequest, nothingSent: boolean, error?: unknown): boolean {
  if (request.body.kind === "stream" && request.body.taken) return false;
  if (isIdempotent(request)) return true;
  const connectFailed =
    error instanceof HttpClientError && (error.kind === "connect" || error.kind === "connect-timeout");
  return connectFailed || (nothingSent && error === undefined);
}

/** Error messages may quote a server's response, so their length is limited. */
const MAX_PROBLEM_CHARS = 500;

/** Receives the events of an attempt that the delivery does not handle. */
export interface AttemptOwner {
  readonly clock: Clock;
  readonly redaction: Redaction;
  upgraded(status: number, headers: HeaderList, socket: Duplex): void;
  attemptFailed(error: GatewayError, mayRetry: boolean): void;
  broke(error: unknown): void;
  isUploading(): boolean;
}

export type AttemptDelivery = Pick<Delivery, "run" | "canReplace" | "isDone" | "head" | "data" | "end" | "breakOff">;

export class Attempt implements ResponseReceiver, BackendRun {
  readonly #owner: AttemptOwner;
  readonly #exchange: Exchange;
  readonly #delivery: AttemptDelivery;
  readonly #settings: Settings;
  readonly #defaultTimeoutMs: number;
  readonly #isLast: boolean;
  readonly #startedMs: number;
  #targets = 0;
  #openRequests = 0;
  #hasSent = false;
  #timer: Timer | undefined;
  #run: BackendRun | undefined;
  #state: AttemptState = "waiting";
  #said: ErrorCode | undefined = undefined;

  constructor(
    owner: AttemptOwner,
    exchange: Exchange,
    delivery: AttemptDelivery,
    chosen: WeightedBackend,
    isLast: boolean,
  ) {
    this.#owner = owner;
    this.#exchange = exchange;
    this.#delivery = delivery;
    // These settings already include those of the gateway and the route.
    this.#settings = chosen.policies.settings;
    this.#defaultTimeoutMs = chosen.backend.defaultTimeoutMs;
    this.#isLast = isLast;
    this.#startedMs = owner.clock.monotonicMs();
  }

  start(backend: Backend): void {
    const { upstream, attempts } = this.#exchange;
    attempts.startCall();
    upstream.startedMs = this.#startedMs;
    upstream.headMs = undefined;
    const { requestTimeoutMs, backendTimeoutMs } = this.#settings;
    // The default timeout does not apply while the client's body is still arriving.
    const isDefault = requestTimeoutMs === undefined && backendTimeoutMs === undefined;
    const isUploading = isDefault && this.#exchange.request.body.kind === "stream";
    const run = backend.call(this.#exchange, this);
    // A backend may respond during the call.
    if (isOver(this.#state)) {
      if (this.#state === "abandoned") run.abort();
      return;
    }
    this.#run = run;
    this.#delivery.run = this;
    // The client may have disconnected or received another response in the meantime.
    if (this.#delivery.isDone) this.abort();
    else if (this.#state === "waiting") this.#arm(isUploading);
  }

  /** Ends the attempt without notifying the owner. */
  abort(): void {
    if (!this.#transition("abort")) return;
    this.#timer?.cancel();
    this.#run?.abort();
  }

  resume(): void {
    if (!isOver(this.#state)) this.#run?.resume();
  }

  get isWatched(): boolean {
    return this.#exchange.isWatched;
  }

  requestSent(): void {
    if (isOver(this.#state)) return;
    if (!this.#hasSent) this.#exchange.upstream.startedMs = this.#owner.clock.monotonicMs();
    this.#hasSent = true;
    this.#openRequests += 1;
  }

  resultReceived(): void {
    if (isOver(this.#state)) return;
    this.#openRequests -= 1;
    this.#exchange.upstream.headMs = this.#owner.clock.monotonicMs();
  }

  attempt(target: string, sent?: Sent, served?: ServedModel): void {
    this.#targets += 1;
    if (this.#targets > 1 && this.#run?.tryNext !== undefined && this.#state === "waiting") this.#arm(false);
    if (!isOver(this.#state)) reportAttempt(this.#exchange, this.#owner, target, sent, served);
  }

  received(status: number, headers: HeaderList, target?: string): void {
    if (!isOver(this.#state)) reportResponse(this.#exchange, this.#owner, status, headers, target);
  }

  missed(reason: string, target?: string): void {
    if (!isOver(this.#state)) reportMiss(this.#exchange, this.#owner, reason, target);
  }

  head(status: number, headers: HeaderList): void {
    if (this.#state !== "waiting") return;
    try {
      if (!this.#isLast && this.#isRetried(status, headers) && mayRepeat(this.#exchange.request, true)) {
        this.#reportHead(status, headers);
        this.abort();
        this.#owner.attemptFailed(new GatewayError("backend_unavailable", { detail: `status ${status}` }), true);
        return;
      }
      this.#transition("head");
      this.#timer?.cancel();
      const nowMs = this.#owner.clock.monotonicMs();
      this.#exchange.upstream.headMs ??= nowMs;
      this.#reportHead(status, headers, nowMs);
      if (this.#exchange.attempts.areAwaited) this.#exchange.upstream.delaySnapshots();
      this.#delivery.head(status, headers, this.#said);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  data(chunk: Buffer): boolean {
    if (this.#state !== "responding") return true;
    try {
      return this.#delivery.data(chunk);
    } catch (thrown) {
      this.#threw(thrown);
      return true;
    }
  }

  end(trailers?: readonly string[]): void {
    if (!this.#transition("end")) return;
    try {
      this.#delivery.end(trailers);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  problem({ code, source, reason, said }: BackendProblem): void {
    this.#said ??= said;
    if (this.#exchange.failure !== undefined) return;
    // A server may quote the client's request. The reason is truncated last, because redaction would not recognize
    // half of a secret.
    const shown = this.#owner.redaction.scrub(reason, this.#exchange.arrived.headers.pairs);
    this.#exchange.failure = { code, source, message: shown.slice(0, MAX_PROBLEM_CHARS), detail: undefined };
  }

  fail(error: unknown): void {
    const wasResponding = this.#state === "responding";
    if (!this.#transition("error")) return;
    this.#timer?.cancel();
    try {
      this.#failed(error, wasResponding);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  #failed(error: unknown, wasResponding: boolean): void {
    const failure = backendError(error);
    if (failure.code === "internal" && wasResponding) {
      this.#owner.broke(failure);
      return;
    }
    // If the head is still held, an error response is possible.
    if (wasResponding && this.#delivery.canReplace) {
      this.#owner.attemptFailed(failure, false);
      return;
    }
    if (wasResponding) {
      this.#exchange.failure ??= {
        code: failure.code,
        source: failure.source,
        message: failure.message,
        detail: failure.detail,
      };
      this.#delivery.breakOff();
      return;
    }
    reportFailure(this.#exchange, this.#owner, failure.detail ?? failure.message);
    this.#owner.attemptFailed(
      failure,
      mayRepeat(this.#exchange.request, error instanceof HttpClientError && error.kind === "connect", error),
    );
  }

  upgraded(status: number, headers: HeaderList, socket: Duplex): void {
    this.#reportHead(status, headers);
    if (!this.#transition("upgrade")) {
      socket.destroy();
      return;
    }
    this.#timer?.cancel();
    try {
      this.#owner.upgraded(status, headers, socket);
    } catch (thrown) {
      socket.destroy();
      this.#threw(thrown);
    }
  }

  #arm(wasUploading: boolean): void {
    this.#timer?.cancel();
    const { clock } = this.#owner;
    const deadlineMs = requestDeadline(this.#settings, this.#exchange.startedMs);
    const spares = this.#run?.spareTargets ?? 0;
    const limitMs = headLimitMs(this.#settings, this.#defaultTimeoutMs, deadlineMs, clock.monotonicMs(), spares);
    if (limitMs === UNLIMITED) return;
    this.#timer = clock.after(limitMs, () => {
      // The timeout restarts at the first check after the end of the upload.
      if (wasUploading) this.#arm(this.#owner.isUploading());
      else if (this.#state === "waiting")
        this.#expire(timeoutDetail(this.#settings, this.#defaultTimeoutMs, limitMs, spares), deadlineMs);
    });
  }

  #expire(detail: string, deadlineMs: number | undefined): void {
    try {
      this.#timedOut(detail, deadlineMs);
    } catch (thrown) {
      this.#threw(thrown);
    }
  }

  /** Returns whether the response counts as a failure of an attempt that may be repeated. */
  #isRetried(status: number, headers: HeaderList): boolean {
    const { retry } = this.#settings;
    if (retry === undefined) return false;
    const isFailure = retry.codes.has(status) || retry.condition?.(this.#exchange, status, headers) === true;
    return isFailure && retry.precondition?.(this.#exchange) !== false;
  }

  #timedOut(detail: string, deadlineMs: number | undefined): void {
    const hasTime = deadlineMs === undefined || this.#owner.clock.monotonicMs() < deadlineMs;
    if (hasTime && this.#run?.tryNext?.(detail) === true) {
      // Getting a credential for the next target counts against its timeout.
      if (this.#state === "waiting") this.#arm(false);
      return;
    }
    this.abort();
    const error = new GatewayError("backend_timeout", { detail });
    reportFailure(this.#exchange, this.#owner, detail);
    this.#owner.attemptFailed(error, isIdempotent(this.#exchange.request) && mayRepeat(this.#exchange.request, false));
  }

  #transition(event: AttemptEvent): boolean {
    const next = afterEvent(this.#state, event);
    if (next === undefined) return false;
    this.#state = next;
    // The servers have not responded, so their time ends with the attempt.
    if (this.#openRequests > 0 && isOver(next)) this.#exchange.upstream.headMs = this.#owner.clock.monotonicMs();
    return true;
  }

  /** A defect of the gateway fails only this exchange. */
  #threw(thrown: unknown): void {
    this.abort();
    this.#owner.broke(thrown);
  }

  #reportHead(status: number, headers: HeaderList, nowMs?: number): void {
    if (!isOver(this.#state)) reportHead(this.#exchange, this.#owner, status, headers, nowMs);
  }
}
